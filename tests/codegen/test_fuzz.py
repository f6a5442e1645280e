"""Fuzzing of native code finds nothing in what is here, and everything that is planted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from plica.cli import main
from plica.codegen.fuzz import fuzz
from plica.codegen.llvm.loop_context import LoopContext
from plica.codegen.lower.passes import lowered
from plica.codegen.native import program_of, run_native, run_together
from plica.codegen.plant import PASSES
from plica.codegen.subject import CPU, Elsewhere, Passed, WrongCode, judge, subject
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.passes import Pass
from plica.ir.type.dtype import f32
from plica.runtime.process import can_part
from plica.schedule.smaller import smaller
from tests.conftest import PROFILE

EXAMPLES = {"ci": 8, "dev": 200}.get(PROFILE, 3_000)

pytestmark = pytest.mark.skipif(not can_part(), reason="code that may be wrong runs apart")


def test_nothing_is_found() -> None:
    report = fuzz(EXAMPLES, seed=1, guard=True)
    assert report.finding is None, report.finding
    assert report.examples == EXAMPLES
    assert {"serial", "vectorized", "parallel", "unrolled"} <= set(report["loops"])


def test_the_same_seed_gives_the_same_subject() -> None:
    one, two = subject(4, 7), subject(4, 7)
    assert one is not None
    assert two is not None
    assert one.kernel is two.kernel
    assert one.trace is two.trace
    assert all(map(np.array_equal, one.arrays, two.arrays))


def test_a_planted_bound_is_found() -> None:
    report = fuzz(60, seed=3, passes=PASSES["bound"])
    assert report.finding is not None
    assert "outside" in report.finding.reason
    assert len(report.finding.parts) <= 3  # the mistake is in no step, but lanes may be needed


def test_a_planted_race_is_found_without_running_it() -> None:
    report = fuzz(60, seed=3, passes=PASSES["race"])
    assert report.finding is not None
    assert (report.finding.kind, report.finding.guilty) == ("race", "compact")
    assert "which run at once, meet at" in report.finding.reason


def test_an_access_that_nothing_checks_dies_at_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is made to believe that every index is inside."""
    monkeypatch.setattr(LoopContext, "is_inside", lambda *_: True)
    report = fuzz(20, seed=3, guard=True, passes=PASSES["bound"])
    assert report.finding is not None
    assert report.finding.kind == "bounds"
    assert "SIGSEGV" in report.finding.reason or "beside" in report.finding.reason


@pytest.mark.slow
def test_a_planted_order_is_found_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = fuzz(60, seed=7, passes=PASSES["order"])
    assert report.finding is not None
    assert report.finding.kind == "meaning"
    assert report.finding.parts == ()
    made: dict[str, object] = {}
    exec(compile(report.finding.pytest, str(tmp_path / "test_it.py"), "exec"), made)  # our own text
    test = made["test_native"]
    assert callable(test)
    test(None)  # without the mistake it passes
    monkeypatch.setitem(made, "lower", lambda kernel: lowered(kernel, tuple(PASSES["order"])))
    with pytest.raises(AssertionError):
        test(None)


def test_smaller_subjects_are_subjects() -> None:
    drawn = subject(3, 30)
    assert drawn is not None
    verdicts = [judge(each, isolated=False) for each in smaller(drawn)]
    assert verdicts
    assert all(isinstance(each, Passed | Elsewhere) for each in verdicts)


def test_code_that_raises_is_a_finding() -> None:
    def broken(kernel: Kernel) -> Kernel:
        raise ZeroDivisionError(f"{len(kernel.params)} params")

    drawn = subject(0, 1)
    assert drawn is not None
    verdict = judge(drawn, (Pass("broken", "It raises.", broken, kind="lower"),))
    assert isinstance(verdict, WrongCode)
    assert (verdict.kind, verdict.broken) == ("crash", "broken")
    assert "ZeroDivisionError" in verdict.reason


@pytest.mark.parametrize("planted", ["order", None])
def test_kernels_of_one_program_are_judged_as_alone(planted: str | None) -> None:
    passes = CPU if planted is None else PASSES[planted]
    alone = fuzz(7, seed=7, passes=passes, isolated=False)
    assert fuzz(7, seed=7, passes=passes, isolated=False, together=5) == alone
    assert (alone.finding is None) == (planted is None)


def test_programs_of_several_kernels_give_what_each_gives() -> None:
    x, y, i = buffer("x", (5,), f32), buffer("y", (5,), f32), axis("i")
    twice = Kernel((), (x, y), 1, For(i, index(5), "serial", Store(y, (i,), x[i] * 2.0)))
    square = Kernel((), (x, y), 1, For(i, index(5), "serial", Store(y, (i,), x[i] * x[i])))
    values = [np.arange(5, dtype=np.float32) + each for each in range(3)]
    kernels = [twice, square, twice]  # one that comes again is code once
    assert len(program_of(*kernels).kernels) == 2
    found = run_together(kernels, [[each] for each in values])
    for kernel, each, (made,) in zip(kernels, values, found, strict=True):
        assert made.tolist() == run_native(kernel, [each])[0].tolist()


@pytest.mark.parametrize("side", ["end", "start"])
def test_guarded_arrays_give_the_same(side: object) -> None:
    x, y, i = buffer("x", (13,), f32), buffer("y", (13,), f32), axis("i")
    kernel = Kernel((), (x, y), 1, For(i, index(13), "vectorized", Store(y, (i,), x[i] * 2.0)))
    values = np.arange(13, dtype=np.float32)
    (found,) = run_native(kernel, [values], side=side)  # type: ignore[arg-type]  # one of the two
    assert found.tolist() == (values * 2).tolist()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "kernel", "--examples", "2", "--guard", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 2
    assert report["finding"] is None
    assert main(["fuzz", "kernel", "--examples", "1"]) == 0
    assert "All compute what they mean." in capsys.readouterr().out
    assert main(["fuzz", "kernel", "--examples", "9", "--seed", "3", "--plant", "bound"]) == 1
    assert "A minimal case, as a test" in capsys.readouterr().out
