"""Records that come with the package are taken on the machine they were measured on alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import plica
from plica import op
from plica.codegen.backend import backend_of, find_target
from plica.core.diagnostic import Malformed
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.ir.type.term import tensor
from plica.pipeline import option
from plica.pipeline.compiled import kept_pieces
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.record.order import IN_PLACE, in_order
from plica.search.record.package import SUFFIX, packed, unpacked, winning_records
from plica.search.record.record import record
from plica.search.target import fingerprint, tuning_of
from plica.search.task import TWICE, tasks
from tests.search.work import of_main


def package(
    folder: Path,
    threads: int,
    beside_default: bool = True,
    of_module: Module | None = None,
    knows_loops: bool = True,
) -> Path:
    """A package of this machine: the last schedule of a product, or of what has written loops in
    another module, faster than the default, or than another schedule."""
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, threads)
    of = tuning_of(target).space
    assert of is not None
    every = tasks(of_module or from_text(TWICE), DEFAULT_CONTRACT, (), target)
    spaces = [(each, of(each, target)) for each in every]
    written = [each for each in spaces if each[1].sketches[0].loops_digest]
    ((task, space), *_) = written or spaces
    best = space.defaults()[-1]
    usual = space.default if beside_default else space.neighbours(best)[0]
    made = []
    for trial, (point, cost) in enumerate(((usual, 2e-6), (best, 1e-6))):
        sketch, trace = space.sketches[point.sketch], space.trace(point).to_json()
        said = sketch.loops_digest if knows_loops else ""
        made.append(
            record(task.key, fingerprint(target), trace, sketch.name, (cost,), trial=trial,
                   message=said)
        )  # fmt: skip
    path = folder / option.package_name(target)
    path.write_text(packed(winning_records(made), keep=2), encoding="utf-8")
    return path


def test_a_package_of_this_machine_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, 1)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    module = from_text(TWICE)
    exe = plica.compile(module, threads=1, cache=False)
    assert "tuned" in exe.tuning
    x, y = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    assert np.allclose(exe(x, y), x @ y @ y, atol=1e-4)
    assert "tuned " not in plica.compile(module, threads=2, cache=False).tuning
    monkeypatch.setenv("PLICA_RECORDS", "off")
    assert "tuned " not in plica.compile(module, threads=1, cache=False).tuning
    monkeypatch.setenv("PLICA_RECORDS", "of")
    with pytest.raises(plica.UnsupportedError, match="PLICA_RECORDS"):
        plica.compile(module, threads=1, cache=False)


def test_a_record_beside_another_default_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, 1, beside_default=False)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    exe = plica.compile(from_text(TWICE), threads=1, cache=False)
    (_, line) = exe.tuning.splitlines()
    assert line.split()[:3] == ["matmul", "2", "default"]
    assert "another default" in line


@pytest.mark.parametrize("knows_loops", [True, False])
def test_a_default_with_loops_of_its_own_is_told_by_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_loops: bool
) -> None:
    x = Var(Name("x"), tensor((30, 50), "f32"))
    made = of_main(op.sort(x), x)
    package(tmp_path, 1, of_module=made, knows_loops=knows_loops)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    exe = plica.compile(made, threads=1, cache=False)
    (line,) = [each for each in exe.tuning.splitlines() if each.startswith("merge_runs")]
    assert ("  tuned  " if knows_loops else "  default  ") in line
    assert knows_loops or "another default" in line
    values = np.random.default_rng(1).standard_normal((30, 50)).astype(np.float32)
    assert np.array_equal(exe(values), np.sort(values))


def test_what_is_hardly_faster_is_not_packed() -> None:
    def packs(cost: float, *, there: bool = False) -> bool:
        default = record("w", "m", "default", "f", (1.0,))
        timed = [record("w", "m", t, "f", (c,), trial=1, policy=IN_PLACE if there else "")
                 for t, c in (("default", 1.0), ("fast", cost))]  # fmt: skip
        return bool(winning_records([default, *timed]))

    assert packs(0.8)
    assert not packs(0.95)  # where its memory lay may be why
    assert packs(0.95, there=True)
    assert not packs(0.98, there=True)


def test_packages_are_pairs_of_one_machine() -> None:
    for path in sorted(option.PACKAGES.glob("*")):
        records = unpacked(path.read_text(encoding="utf-8"))
        assert path.suffix == SUFFIX
        assert len({each.target for each in records}) == 1
        for pair in zip(records[::2], records[1::2], strict=True):
            assert pair[0].key == pair[1].key
            assert in_order(pair) == pair


def _flipped(path: Path) -> None:
    said = path.read_bytes()
    path.write_bytes(said[:-9] + bytes([said[-9] ^ 1]) + said[-8:])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" + path.read_bytes())


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [_flipped, _cut, _emptied, _no_text, _folder])
def test_a_damaged_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    """With its place and a way out, whether or not a schedule is asked of it."""
    path = package(tmp_path, 1)
    damage(path)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    x = Var(Name("x"), tensor((4,), "f32"))
    for module in (from_text(TWICE), of_main(op.exp(x), x)):
        with pytest.raises(Malformed, match="cannot be read") as told:
            plica.compile(module, threads=1, cache=False)
        (said,) = told.value.diagnostics
        assert said.place is not None
        assert said.place.file == str(path)
        assert "PLICA_RECORDS=off" in (said.suggestion or "")
    monkeypatch.setenv("PLICA_RECORDS", "OFF")
    plica.compile(from_text(TWICE), threads=1, cache=False)


def test_a_tuned_group_comes_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was made by records is not chosen again, and is what it would be anew."""
    package(tmp_path, 1)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("PLICA_CACHE_AUDIT", "0")
    module = from_text(TWICE)
    anew = plica.compile(module, threads=1, cache=False)
    assert "tuned" in plica.compile(module, threads=1).tuning
    monkeypatch.setattr(option.ShippedRecords, "whole", never)
    edited = plica.compile(module, threads=1, disabled=("padding",))  # another entry, one group
    assert kept_pieces(edited.artefact) == kept_pieces(anew.artefact)


@pytest.mark.parametrize("effort", ["default", "fast"])
def test_records_of_other_work_are_not_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: str
) -> None:
    package(tmp_path, 1)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    monkeypatch.delenv("PLICA_RECORDS")
    monkeypatch.setattr(option.ShippedRecords, "whole", never)
    x = Var(Name("x"), tensor((3, 5), "f32"))
    exe = plica.compile(of_main(op.tanh(x), x), threads=1, cache=False, effort=effort)
    np.testing.assert_array_equal(exe(np.zeros((3, 5), np.float32)), np.zeros((3, 5)))
    if effort == "fast":  # who wants code soon asks for none
        plica.compile(from_text(TWICE), threads=1, cache=False, effort=effort)


def never(of: option.ShippedRecords) -> NoReturn:
    raise AssertionError("Records are asked for.")
