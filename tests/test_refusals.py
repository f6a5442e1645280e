"""What the public functions say where they are given what they do not take: one test each."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica import op
from plica.cli import main
from plica.rewrite import approx, became, first_bad, holes, pack, rewrite, rule, why
from plica.runtime.error import ArgumentError, PlicaError
from plica.schedule import (
    Trace,
    bisect,
    block,
    diff,
    do,
    merge,
    minimise,
    normalise,
    replay,
    split,
    trace_of,
    transport,
)

# Any: these are the wrong types on purpose.
ANY: Any = plica
x: Any
(x,) = holes("x")

EMPTY: Any = lambda: 5  # noqa: E731  # a function that yields nothing
MODULE = plica.from_text("@plica.function\ndef main(x: Tensor[(3,), f32]):\n    return x + 1.0\n")
KERNEL = plica.from_text("""
@plica.kernel
def k(A: Buffer[(4, 4), f32], C: Buffer[(4, 4), f32]):
    for i, j in grid(4, 4):
        with block("C", spatial=(i, j)):
            C[i, j] = A[i, j] * 2.0
""")
TWICE = rule("relu-twice", op.nn.relu(op.nn.relu(x)), op.nn.relu(x))

KINDS: dict[str, Callable[[], object]] = {
    "compile a number": lambda: ANY.compile(5),
    "compile nothing": lambda: ANY.compile(None),
    "compile a plain function": lambda: ANY.compile(lambda v: v),
    "compile a list": lambda: ANY.compile([MODULE]),
    "compile with packs": lambda: ANY.compile(MODULE, packs=5),
    "compile with a cache": lambda: ANY.compile(MODULE, cache="x"),
    "compile with a validation": lambda: ANY.compile(MODULE, validate=np.ones(2)),
    "compile in a background": lambda: ANY.compile(MODULE, background="no"),
    "compile with a word for a size": lambda: ANY.compile(MODULE, specialise=2),
    "compile with efforts": lambda: ANY.compile(MODULE, effort=["fast"]),
    "compile with a number of donated inputs": lambda: ANY.compile(MODULE, donate=1),
    "compile with donated numbers": lambda: ANY.compile(MODULE, donate=(1, 2)),
    "compile with dims": lambda: ANY.compile(MODULE, dims={"n": 2}),
    "compile with a misspelt option": lambda: ANY.compile(MODULE, thread=2),
    "compile without passes": lambda: ANY.compile(MODULE, disabled=5),
    "dims of a model": lambda: ANY.from_onnx(b"", dims=[2]),
    "values of a model": lambda: ANY.from_onnx(b"", fixed={3: 2}),
    "load on threads": lambda: ANY.load("m.plica", threads=0),
    "tune into a number": lambda: ANY.tune(MODULE, "cpu", 1, database=5),
    "read a number": lambda: ANY.from_text(5),
    "read bytes": lambda: ANY.from_text(b"x = 1"),
    "interpret": lambda: ANY.interpret(5),
    "load": lambda: ANY.load(5),
    "grad": lambda: ANY.grad(5),
    "value and grad": lambda: ANY.value_and_grad(lambda v: v),
    "digest": lambda: ANY.digest("a"),
    "check without examples": lambda: ANY.check(TWICE, examples=0),
    "check with a seed": lambda: ANY.check(TWICE, examples=3, seed="a"),
    "tune": lambda: ANY.tune(5, "cpu", 3),
    "connect": lambda: ANY.connect(5),
    "quantise": lambda: ANY.quantise(MODULE, 5),
    "function": lambda: ANY.function(5),
    "kernel": lambda: ANY.kernel(5),
    "data": lambda: ANY.data(5),
    "an operand": lambda: op.add("a", x),
    "holes": lambda: ANY.rewrite.holes(5),
    "approx": lambda: approx(-1),
    "approx of a word": lambda: ANY.rewrite.approx("a"),
    "why": lambda: why(*[ANY, x]),
    "became": lambda: became(*[ANY, x]),
    "first_bad": lambda: first_bad(*[ANY, bool]),
    "do": lambda: do(*[ANY]),
    "trace_of": lambda: trace_of(*[ANY, KERNEL]),
    "trace_of no generator": lambda: trace_of(do(EMPTY), KERNEL),
    "replay no trace": lambda: replay(*[ANY, KERNEL]),
    "replay no program": lambda: replay(*[Trace(()), ANY]),
    "transport": lambda: transport(*[ANY, KERNEL]),
    "diff": lambda: diff(*[ANY, ANY]),
    "merge": lambda: merge(*[ANY, ANY, ANY]),
    "bisect": lambda: bisect(*[ANY, KERNEL, bool]),
    "minimise": lambda: minimise(*[ANY, KERNEL, bool]),
    "normalise": lambda: normalise(*[ANY]),
    "from_json": lambda: Trace.from_json(*[ANY]),
}


@pytest.mark.parametrize("name", KINDS)
def test_arguments_of_the_wrong_kind(name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        KINDS[name]()
    (said,) = caught.value.diagnostics
    assert said.code == "input-type"
    assert said.expected
    assert said.found
    assert isinstance(caught.value, TypeError)  # what Python calls it


def instructions(*asked: Callable[..., object]) -> Callable[[], Generator[Any, Any, None]]:
    def body() -> Generator[Any, Any, None]:
        handle = yield block("C")
        for each in asked:
            yield each(handle)

    return body


@pytest.mark.parametrize(
    "asked",
    [
        lambda c: 5,
        lambda c: None,
        lambda c: split,
        lambda c: split(*[ANY, (2, 2)]),
        lambda c: split(*[c, ANY]),
    ],
)
def test_do_blocks_yield_instructions_over_handles(asked: Callable[..., object]) -> None:
    with pytest.raises(ArgumentError):
        trace_of(do(instructions(asked)), KERNEL)


def test_what_a_do_block_yields_has_its_line() -> None:
    with pytest.raises(ArgumentError) as caught:
        trace_of(do(instructions(lambda c: 5)), KERNEL)
    place = caught.value.diagnostics[0].place
    assert place is not None
    assert place.file == __file__


def test_samples_are_needed_where_nothing_is_quantised_too() -> None:
    with pytest.raises(PlicaError):
        plica.quantise(MODULE, [])


def test_paths_are_texts(tmp_path: Path) -> None:
    exe: Any = plica.compile(MODULE, cache=False)
    for call in (exe.save, exe.export):
        with pytest.raises(ArgumentError):
            call(5)


def test_an_empty_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nothing.onnx"
    path.touch()
    with pytest.raises(PlicaError, match=r"nothing\.onnx") as caught:
        plica.compile(path)
    assert caught.value.diagnostics[0].found == "an empty file"


def test_rules_that_fail_show_terms_as_scripts() -> None:
    born = False

    def right(m: Any) -> Any:
        if born:
            raise KeyError("a")
        return op.nn.relu(m.x)

    wrong = rule("raises-later", op.nn.relu(op.nn.relu(x)), right)
    born = True
    text = "@plica.function\ndef main(v: Tensor[(2,), f32]):\n    return nn.relu(nn.relu(v))\n"
    with pytest.raises(PlicaError) as caught:
        rewrite(plica.from_text(text), pack("p", wrong, version="1"))
    assert "on nn.relu(nn.relu(v))" in str(caught.value)
    assert "Apply(" not in str(caught.value)


def test_a_hole_alone_is_no_left_side() -> None:
    with pytest.raises(PlicaError, match="the hole x alone"):
        rule("zero", x, x + np.float32(0))
    with pytest.raises(PlicaError, match="no two have one name"):
        holes("x x")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (".", "has no pyproject.toml"),
        ("./not_there", "There is no such folder"),
        ("rules.py", "plica rules check FILE.py"),
        ("numpy", "is installed, but has no entry points"),
        ("no_such_package", "There is no installed package and no folder"),
    ],
)
def test_what_is_no_package(
    given: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").touch()
    assert main(["check", given]) != 0
    assert said in " ".join(capsys.readouterr().err.split())
