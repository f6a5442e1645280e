"""Fuzzing of schedules finds nothing in what is here, and everything that is planted."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

import plica
from plica.cli import main
from plica.core.diagnostic import EvaluationError
from plica.core.fold import post_order
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Load
from plica.ir.text.show.kernel import show_kernel
from plica.schedule import block, do, loops, precondition as pose, split, trace_of, vectorize
from plica.schedule.do import Body
from plica.schedule.fuzz import as_pytest, differs, fuzz
from plica.schedule.generate import random_case, untried, walk
from plica.schedule.generate.material import KernelCase
from plica.schedule.instruction import kinds
from plica.schedule.replay import kernel_of, scheduled
from plica.schedule.smaller import ScheduledCase, smallest
from plica.schedule.trace import Trace
from tests.conftest import PROFILE
from tests.schedule.mutation import MUTATIONS, Mutation, forget
from tests.schedule.test_page import text_of

EXAMPLES = {"ci": 30, "dev": 300}.get(PROFILE, 3_000)
BUDGET = 150
"""Within how many kernels a planted bug is found."""
EVERYWHERE = {"alive", "decided", "known-handle", "support"}
"""Preconditions of every step that has handles or decisions."""


def test_nothing_is_found() -> None:
    report = fuzz(EXAMPLES, seed=1)
    assert report.finding is None, report.finding
    assert report.examples == EXAMPLES


@settings(max_examples=5, phases=[Phase.generate])  # findings are shrunk by `fuzz`
@given(st.randoms(use_true_random=False))
def test_traces_keep_meaning(random: Random) -> None:
    case = random_case(random)
    steps, _ = walk(case.kernel, random, 6)
    expected = run_kernel(case.kernel, case.arrays, case.sizes)  # type: ignore[arg-type]
    assert differs(scheduled(Trace(steps), case.kernel), case, expected) is None


def test_every_kind_is_tried() -> None:
    assert untried() == ()


def test_preconditions_are_documented() -> None:
    report = fuzz(40, seed=2)
    texts = [text_of(cls, kind) for kind, cls in kinds().items()]
    known = EVERYWHERE.union(
        re.findall(r"^    ([a-z-]+) ", str(pose.__doc__), re.MULTILINE),
        *[re.findall(r"`([a-z-]+)`", text) for text in texts],
    )
    found = {each.partition(": ")[2] for each in report["refused"]}
    assert found - known == set()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_planted_bugs_are_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.plant(monkeypatch, mutation.kind)
    try:
        focus = (mutation.kind, *mutation.beside)
        findings = (fuzz(BUDGET, seed=seed, focus=focus).finding for seed in (1, 2, 3))
        found = next(filter(None, findings), None)
    finally:
        monkeypatch.undo()
        forget()
    assert found is not None
    assert found.step == mutation.kind
    assert found.kind != "meaning" or len(found.parts) <= 10


def test_a_case_is_shrunk_in_kernel_shape_and_data() -> None:
    """What has nothing to do with the mistake goes: blocks, operations, sizes, numbers."""
    kernel = kernel_of(plica.from_text("""
@plica.kernel
def k(A: Buffer[(6, 8), f32], B: Buffer[(6, 8), f32],
      C: Buffer[(6, 8), f32], D: Buffer[(6, 8), f32]):
    for i, j in grid(6, 8):
        with block("C", spatial=(i, j)):
            C[i, j] = exp(A[i, j] * 2.0) + B[i, j]
    for i, j in grid(6, 8):
        with block("D", spatial=(i, j)):
            D[i, j] = B[i, j] * 3.0
"""))[2]  # fmt: skip
    data = tuple(np.arange(48, dtype=np.float32).reshape(6, 8) for _ in range(2))

    @do
    def steps() -> Body:
        c = yield block("C")
        i, j = yield loops(c)
        yield split(i, (None, 2))
        yield vectorize(j)

    def fails(case: ScheduledCase) -> bool:  # the vectorised copy of A is to blame
        loads = [each for each in post_order(case.kernel) if isinstance(each, Load)]
        kinds = {step.instruction.kind for step in case.trace.steps}
        return "vectorize" in kinds and any(str(each.buffer.name) == "A" for each in loads)

    least = smallest(ScheduledCase(kernel, data, trace_of(steps, kernel)), fails)
    text = show_kernel(least.kernel, "k")
    assert "C[i, j] = A[i, j]" in text
    assert "B: Buffer" not in text
    assert "grid(1, 1)" in text
    assert not least.arrays[0].any()
    assert [step.instruction.kind for step in least.trace.steps] == ["block", "loops", "vectorize"]


def test_of_a_kernel_that_goes_wrong_early_the_rest_goes() -> None:
    """What was between becomes the result, and an input that nobody reads is none."""
    kernel = kernel_of(
        plica.from_text("""
@plica.kernel
def k(A: Buffer[(4,), f32], B: Buffer[(4,), f32], D: Buffer[(4,), f32]):
    C = alloc(Buffer[(4,), f32])
    for i in range(4):
        with block("C", spatial=(i,)):
            C[i] = A[i]
    for i in range(4):
        with block("D", spatial=(i,)):
            D[i] = C[i]
""")
    )[2]

    @do
    def steps() -> Body:
        (i,) = yield loops((yield block("C")))
        yield vectorize(i)

    data = (np.zeros(4, np.float32),) * 2
    whole = ScheduledCase(kernel, data, trace_of(steps, kernel))
    least = smallest(whole, lambda case: len(case.trace) == 3)
    assert [str(each.name) for each in least.kernel.params] == ["A", "C"]
    assert "alloc" not in show_kernel(least.kernel, "k")
    assert len(least.arrays) == 1


def test_a_step_of_a_package_has_a_test_of_its_name() -> None:
    kernel = KernelCase(kernel_of(plica.from_text("""
@plica.kernel
def k(A: Buffer[(4,), f32], B: Buffer[(4,), f32]):
    for i in range(4):
        with block("B", spatial=(i,)):
            B[i] = A[i]
"""))[2], {}, (np.zeros(4, np.float32),))  # fmt: skip
    text = as_pytest("acme.flipped", "it fails", (kernel.kernel, kernel.kernel), kernel)
    space: dict[str, Any] = {}
    exec(compile(text, "finding", "exec"), space)
    space["test_acme_flipped"]()


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 20
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS)


def test_the_printed_test_fails_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = next(each for each in MUTATIONS if each.name == "fuse swaps the loops")
    planted.plant(monkeypatch, planted.kind)
    found = fuzz(BUDGET, focus=(planted.kind,)).finding
    monkeypatch.undo()
    assert found is not None
    space: dict[str, object] = {}
    exec(compile(found.pytest, "finding", "exec"), space)
    test = space["test_fuse"]
    assert callable(test)
    with pytest.raises((AssertionError, EvaluationError)):
        test()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "schedule", "--examples", "3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["examples"] == 3
    assert data["finding"] is None
    assert main(["fuzz", "schedule", "--examples", "2", "--focus", "split"]) == 0
    assert "All mean afterwards" in capsys.readouterr().out
