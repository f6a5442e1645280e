"""Fuzzing of decisions: default traces with other numbers are right or refused, and a mistake in a
step is found."""

from random import Random

import numpy as np
import pytest

from plica.codegen.form_fuzz import fuzz_decisions
from plica.codegen.form_fuzz.decision import TracedCase, changed, judged
from plica.codegen.form_fuzz.judge import StagesSubject
from plica.codegen.lower.passes import LOWERING
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.tensor import buffer
from plica.ir.type.dtype import f32
from plica.schedule import block, do, loops, split, trace_of, unroll
from plica.schedule.form import Facts
from plica.schedule.fuzz import TraceFinding
from plica.schedule.generate.stages import StagesCase
from plica.schedule.instruction import Edited, Scene
from plica.schedule.primitive.split import Split
from plica.schedule.trace import Step, Trace

X = buffer("x", (64,), f32)
DOUBLED = stages((X,), (stage("y", (64,), lambda i: X[i] * 2.0),))


def doubled() -> tuple[Trace, int]:
    """A trace of one split by 8, and the number of that step."""

    @do
    def unrolled():  # type: ignore[no-untyped-def]  # a do-block, whose yields have many types
        (i,) = yield loops((yield block("y")))
        _, inner = yield split(i, (None, 8))
        yield unroll(inner)

    found = trace_of(unrolled, kernel_of(DOUBLED))
    (at,) = [n for n, each in enumerate(found.steps) if isinstance(each.instruction, Split)]
    return found, at


def test_a_decision_is_changed_and_no_address() -> None:
    trace, at = doubled()
    for seed in range(20):
        other, kinds = changed(trace, Random(seed))
        assert kinds == ("split",)
        assert other.steps[at] != trace.steps[at]
        assert [each for n, each in enumerate(other.steps) if n != at] == [
            each for n, each in enumerate(trace.steps) if n != at
        ]


def test_a_trace_without_decisions_stays() -> None:
    trace, _ = doubled()
    bare = trace.prefix(1)
    assert changed(bare, Random(0)) == (bare, ())


def test_changed_default_traces_are_right_or_refused() -> None:
    report = fuzz_decisions(examples=4, seed=3)
    assert report.finding is None, str(report.finding)
    assert report.examples == 4
    assert report["taken"]
    assert report["refused"]


def test_a_mistake_in_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, at = doubled()
    step = trace.steps[at]
    assert isinstance(step.instruction, Split)
    by_three = Split(step.instruction.loop, (None, 3))
    other = Trace((*trace.steps[:at], Step(by_three), *trace.steps[at + 1 :]))
    array = np.arange(64, dtype=np.float32)
    subject = StagesSubject(StagesCase(DOUBLED, Facts((False,)), [array]), "itself", array * 2)
    passes = LOWERING["cpu"].passes
    case = TracedCase(subject, "itself", "mine", kernel_of(DOUBLED), trace, [array], passes)
    assert judged(case, other, ("split",)) == ""

    right = Split.edit

    def wrong(self: Split, scene: Scene) -> Edited:
        """What is split by 3 is split by 2: iterations are lost."""
        factors = tuple([16 if each is None else 2 for each in self.factors])
        return right(Split(self.loop, factors), scene)

    monkeypatch.setattr(Split, "edit", wrong)
    found = judged(case, other, ("split",))
    assert isinstance(found, TraceFinding)
    assert found.step == "split"
