"""What an executable tells of itself: stats, tier, derivation, tuning; code made in the background
and for one size."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.ir.graph.module import Module
from plica.pipeline import pipeline_of
from plica.pipeline.background import in_background
from plica.rewrite.derivation import Derivation, at
from plica.runtime.selecting_executable import SelectingExecutable


def model(rows: str = "4") -> Module:
    return plica.from_text(
        "@plica.function\n"
        f"def main(x: Tensor[({rows}, 8), f32], w: Tensor[(8, 8), f32]):\n"
        "    return nn.relu(nn.relu(op.matmul(x, w)))\n"
    )


def inputs(rows: int = 4) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return tuple(random.integers(-3, 4, (n, 8)).astype(np.float32) for n in (rows, 8))  # type: ignore[return-value]  # two of them


def expected(rows: int = 4) -> np.ndarray[Any, Any]:
    x, w = inputs(rows)
    found: np.ndarray[Any, Any] = np.maximum(x @ w, 0)
    return found


def test_stats_count_calls_and_compilations(tmp_path: Path) -> None:
    exe = plica.compile(model(), cache=False)
    assert (exe.stats.calls, exe.stats.compilations) == (0, 1)
    for _ in range(3):
        exe(*inputs())
    assert exe.stats.calls == 3
    assert exe.stats.bytes > 0
    exe.save(tmp_path / "m.plica")
    loaded = plica.load(tmp_path / "m.plica")
    loaded(*inputs())
    assert (loaded.stats.calls, loaded.stats.compilations) == (1, 0)


def test_every_thread_is_counted() -> None:
    exe = plica.compile(model(), cache=False)

    def run() -> None:
        for _ in range(50):
            exe(*inputs())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert exe.stats.calls == 200


def test_the_tier_is_the_effort(tmp_path: Path) -> None:
    for effort in ("fast", "default", "max"):
        exe = plica.compile(model(), effort=effort)
        assert exe.tier == effort
    assert plica.compile(model(), passes=pipeline_of("cpu")).tier == "own"
    exe.save(tmp_path / "m.plica")
    assert plica.load(tmp_path / "m.plica").tier == "saved"
    assert plica.compile(model('"n"'), effort="fast").tier == "fast"


def test_a_derivation_prints_as_steps(tmp_path: Path) -> None:
    exe = plica.compile(model(), cache=False)
    found = exe.derivation
    assert isinstance(found, Derivation)
    lines = str(found).splitlines()
    assert len(lines) == 1 + len(found.steps)
    assert lines[0].startswith(f"{len(found.steps)} steps, which keep ")
    assert any("pass" in line and "fuse" in line for line in lines)
    assert any("nn.relu -> nn.relu" in line for line in lines)
    assert found._repr_html_() == "<pre>" + str(found).replace(">", "&gt;") + "</pre>"
    assert at(found, len(found.steps)) is not found.source
    exe.save(tmp_path / "m.plica")
    saved = str(plica.load(tmp_path / "m.plica").derivation).splitlines()
    assert [line.split()[:3] for line in saved[1:]] == [line.split()[:3] for line in lines[1:]]


def test_tuning_without_a_database_says_so(tmp_path: Path) -> None:
    exe = plica.compile(model(), cache=False)
    exe.save(tmp_path / "m.plica")
    for each in (exe, plica.load(tmp_path / "m.plica")):
        head, *rows = each.tuning.splitlines()
        assert head.split() == ["kernel", "times", "schedule", "why"]
        assert rows
        assert all("no tuning database was given" in row for row in rows)


# --- in the background ---------------------------------------------------------------------------


def test_fast_code_answers_until_the_better_is_there(tmp_path: Path) -> None:
    go = threading.Event()

    def better() -> Any:
        go.wait()
        return plica.compile(model(), cache=False)

    exe = in_background(plica.compile(model(), cache=False, effort="fast"), better)
    assert exe.tier == "fast"
    assert np.array_equal(np.asarray(exe(*inputs())), expected())
    with pytest.raises(TimeoutError):
        exe.wait(0.0)
    go.set()
    assert exe.wait() is exe
    assert exe.tier == "default"
    assert np.array_equal(np.asarray(exe(*inputs())), expected())
    assert (exe.stats.calls, exe.stats.compilations) == (2, 2)
    exe.save(tmp_path / "m.plica")
    assert np.array_equal(np.asarray(plica.load(tmp_path / "m.plica")(*inputs())), expected())


def test_compile_in_the_background() -> None:
    exe = plica.compile(model(), background=True, cache=False)
    assert isinstance(exe, SelectingExecutable)
    assert np.array_equal(np.asarray(exe(*inputs())), expected())
    exe.wait()
    assert exe.tier == "default"
    assert len(exe.profile(*inputs(), runs=1).rows) == len(exe.artefact.launches)
    assert isinstance(exe.derivation, Derivation)
    assert exe.tuning
    assert "matmul" in exe.source("kernel")
    assert repr(exe).startswith("<default Executable")


def test_open_sizes_in_the_background() -> None:
    exe = plica.compile(model('"n"'), background=True)
    assert isinstance(exe, SelectingExecutable)
    exe.wait()
    for rows in (1, 5):
        assert np.array_equal(np.asarray(exe(*inputs(rows))), expected(rows))


def test_calls_while_code_is_swapped() -> None:
    exe = plica.compile(model(), background=True, cache=False)
    wrong: list[Any] = []

    def run() -> None:
        for _ in range(200):
            if not np.array_equal(np.asarray(exe(*inputs())), expected()):
                wrong.append(exe.tier)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_what_fails_in_the_background_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("warnings.warn", lambda message, *_, **__: told.append(message))
    heard = threading.Event()

    def better() -> Any:
        raise ValueError("no luck")

    exe = in_background(plica.compile(model(), effort="fast"), better)
    exe.selector.later.add_done_callback(lambda _: heard.set())  # after the one that warns
    with pytest.raises(ValueError, match="no luck"):
        exe.wait()
    assert heard.wait(60)
    assert told == ["No better code was made in the background: no luck"]
    assert exe.tier == "fast"
    assert np.array_equal(np.asarray(exe(*inputs())), expected())


@pytest.mark.parametrize("options", [{"effort": "fast"}, {"passes": pipeline_of("cpu")}])
def test_there_must_be_something_better(options: dict[str, Any]) -> None:
    with pytest.raises(plica.UnsupportedError, match="better effort than fast"):
        plica.compile(model(), background=True, **options)


# --- for one size --------------------------------------------------------------------------------


def test_code_for_one_size_at_its_first_call() -> None:
    exe = plica.compile(model('"n"'), specialise=True, cache=False)
    assert exe.stats.compilations == 1
    for rows in (3, 5, 3):
        assert np.array_equal(np.asarray(exe(*inputs(rows))), expected(rows))
    assert (exe.stats.calls, exe.stats.compilations) == (3, 3)
    plain = plica.compile(model('"n"'), cache=False)
    plain(*inputs(3))
    assert plain.stats.compilations == 1


def test_after_some_sizes_one_code_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plica.runtime.open_executable.MAX_SPECIAL_CODES", 2)
    exe = plica.compile(model('"n"'), specialise=True, cache=False)
    for rows in (1, 2, 3, 4):
        assert np.array_equal(np.asarray(exe(*inputs(rows))), expected(rows))
    assert exe.stats.compilations == 3


def test_the_collector_goes_on_after_a_compilation_and_a_refusal() -> None:
    plica.compile(model(), cache=False)
    assert gc.isenabled()
    with pytest.raises(plica.PlicaError):
        plica.compile(model(), cache=False, effort="none")
    assert gc.isenabled()
