"""Fuzzing of schedules: random kernels go through random traces, and mean what they meant before.

>>> fuzz(examples=3).finding is None
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import attrs
import numpy as np

from plica.analysis.site import distinct
from plica.core import EvaluationError, Name, free_vars
from plica.ir.graph import Var, module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop import Buffer, Kernel, ScalarVar
from plica.ir.loop.specialise import specialise
from plica.rewrite.check.report import literal, slug
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Tally
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.material import KernelCase
from plica.schedule.generate.step import Refusal, untried, walk
from plica.schedule.instruction import Instruction
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, begin, taken
from plica.schedule.smaller import ScheduledCase, minimal, smallest
from plica.schedule.trace import Step, Trace
from plica.schedule.unlowered import private, run_unlowered


@attrs.frozen
class TraceFinding(Finding):
    """A minimal failing trace; `parts` are its steps, and the kind of one is blamed."""

    @property
    def step(self) -> str:
        """The kind of the step to blame."""
        return self.guilty


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    length: int = 8,
    focus: Sequence[str] = (),
    say: Say | None = None,
) -> FuzzReport[TraceFinding]:
    """Runs kernels through traces of up to `length` steps, preferring kinds in `focus`.

    It ends with the first finding.
    """

    def made(number: int) -> _Trial:
        random = Random(f"{seed}/{number}")
        return _Trial(random, random_case(random))

    def oracle(trial: _Trial, number: int, tally: Tally) -> TraceFinding | None:
        finding = trial.run(length, focus)
        tally["taken"].update(step.instruction.kind for step in trial.steps)
        tally["refused"].update(
            f"{refusal.kind}: {refusal.problem.precondition}" for refusal in trial.refusals
        )
        return finding

    campaign = Campaign(
        TraceFinding,
        ByNumber(made),
        oracle,
        counters={"taken": (), "refused": ()},
        settings={"untried": untried()},
    )
    return campaign.run(examples, seed, first=first, say=say)


class _Trial:
    """One kernel and one walk over it."""

    def __init__(self, random: Random, case: KernelCase) -> None:
        self.random, self.case = random, case
        self.steps: tuple[Step, ...] = ()
        self.refusals: tuple[Refusal, ...] = ()
        self._expected: tuple[Array, ...] | None = None

    def run(self, length: int, focus: Sequence[str]) -> TraceFinding | None:
        last: list[tuple[ReplayState, Instruction]] = []

        def watch(state: ReplayState, instruction: Instruction) -> None:
            last[:] = [(state, instruction)]

        try:
            self.steps, self.refusals = walk(self.case.kernel, self.random, length, focus, watch)
        except CRASHES as error:
            state, instruction = last[0]
            return self.finding(
                "crash", instruction.kind, crash(error), (), (state.kernel, state.kernel)
            )
        for refusal in self.refusals:
            unsaid = silent(refusal.problem)
            if unsaid is not None:
                return self.finding("refusal", refusal.kind, unsaid, (), None)
        after = self.after(Trace(self.steps))
        if after is None:
            reason = "a trace that was walked is refused when it is replayed"
            return self.finding("refusal", "replay", reason, self.steps, None)
        return None if self.wrong(after[-1].kernel) is None else self.blame()

    def blame(self) -> TraceFinding:
        """The minimal failing trace on a minimal kernel and data, with its first bad step."""
        sizes: Mapping[Any, int] = self.case.sizes
        whole = ScheduledCase(specialise(self.case.kernel, sizes), self.case.arrays,
                              minimal(Trace(self.steps), self.fails))  # fmt: skip
        if _fails(whole):  # a trace may need dims
            part = smallest(whole, _fails)
            self.case, self._expected = KernelCase(part.kernel, {}, part.arrays), None
            whole = part
        trace = whole.trace
        states = self.after(trace)
        assert states is not None  # it fails by being wrong, not by being refused
        at = next(at for at, state in enumerate(states) if self.wrong(state.kernel) is not None)
        reason = self.wrong(states[at].kernel)
        assert reason is not None
        before = states[at - 1].kernel if at else begin(self.case.kernel).kernel
        pair = (before, states[at].kernel)
        kind = trace.steps[at].instruction.kind
        return self.finding("meaning", kind, reason, trace.steps, pair)

    def fails(self, trace: Trace) -> bool:
        """Whether a trace is accepted and breaks the kernel."""
        try:
            states = self.after(trace)
        except CRASHES:
            return False  # another mistake than the one that is looked for
        return states is not None and self.wrong(states[-1].kernel) is not None

    def after(self, trace: Trace) -> list[ReplayState] | None:
        """The states after each step, or None if one is refused."""
        state = begin(self.case.kernel)
        replay_states = [state]
        for step in trace.steps:
            after = taken(state, step)
            if isinstance(after, Problem):
                return None
            state = after
            replay_states.append(state)
        return replay_states[1:] or replay_states

    @property
    def expected(self) -> tuple[Array, ...]:
        if self._expected is None:
            sizes: Mapping[Any, int] = self.case.sizes
            self._expected = run_kernel(self.case.kernel, self.case.arrays, sizes)
        return self._expected

    def wrong(self, kernel: Kernel) -> str | None:
        """How a kernel differs from that of the case."""
        return differs(kernel, self.case, self.expected)

    def finding(
        self,
        kind: str,
        step: str,
        reason: str,
        steps: tuple[Step, ...],
        pair: tuple[Kernel, Kernel] | None,
    ) -> TraceFinding:
        text = "" if pair is None else as_pytest(step, reason, pair, self.case)
        return TraceFinding(kind, step, reason, text, parts=numbered(steps))


def numbered(steps: Sequence[Step]) -> tuple[str, ...]:
    """Steps as a finding shows them."""
    return tuple([f"{at}: {step.instruction!r}" for at, step in enumerate(steps)])


def blamed(case: KernelCase, trace: Trace) -> TraceFinding | None:
    """A minimal part of a trace that breaks a minimal part of a kernel, or None."""
    trial = _Trial(Random(0), case)
    trial.steps = trace.steps
    return trial.blame() if trial.fails(trace) else None


def _fails(of: ScheduledCase) -> bool:
    """Whether a smaller case has a meaning, can be scheduled, and is spoiled then."""
    trial = _Trial(Random(0), KernelCase(of.kernel, {}, of.arrays))
    try:
        trial.expected  # noqa: B018  # it must have a meaning before
    except EvaluationError:
        return False
    return trial.fails(of.trace)


def silent(problem: Problem) -> str | None:
    """The missing part of a refusal message."""
    for part in ("precondition", "where", "expected", "found"):
        if not getattr(problem, part):
            return f"the refusal {problem!r} does not say its {part!r}"
    if not problem.precondition.replace("-", "").isalnum():
        return f"{problem.precondition!r} is no stable word for a precondition"
    return None


def differs(kernel: Kernel, case: KernelCase, expected: tuple[Array, ...]) -> str | None:
    """How a scheduled kernel differs from the original, or None."""
    if distinct(kernel) is not kernel:
        return "a name is bound twice"
    loose = [str(var.name) for var in free_vars(kernel) if isinstance(var, Buffer | ScalarVar)]
    if loose:
        return f"{min(loose)} is bound nowhere"
    sizes: Mapping[Any, int] = case.sizes
    try:
        arrays = run_unlowered(kernel, case.arrays, sizes)
    except EvaluationError as error:
        return f"it fails: {error}"
    for param, one, two in zip(kernel.params[kernel.inputs :], expected, arrays, strict=True):
        if not np.array_equal(one, two):
            at = tuple(int(each) for each in np.argwhere(one != two)[0])
            return f"{param.name}{list(at)} is {two[at]} instead of {one[at]}"
    return None


def as_pytest(step: str, reason: str, pair: tuple[Kernel, Kernel], case: KernelCase) -> str:
    """A test that fails as long as two kernels differ: those around the wrong step."""
    first, second = (str(module({Var(Name("kernel"), None): private(kernel)})) for kernel in pair)
    arrays = "".join(f"        {literal(array)},\n" for array in case.arrays)
    sizes = {str(dim.name): size for dim, size in case.sizes.items()}
    return f'''import ml_dtypes  # noqa: F401  # its dtypes have names for numpy then
import numpy as np

import plica
from plica.ir.interpret.kernel import run_kernel
from plica.schedule.replay import kernel_of

# {step}: {" ".join(reason.split())}
BEFORE = """
{first.rstrip()}
"""
AFTER = """
{second.rstrip()}
"""


def test_{slug(step)}() -> None:
    inputs = [
{arrays}    ]
    results = []
    for text in (BEFORE, AFTER):
        kernel = kernel_of(plica.from_text(text))[2]
        sizes = {{dim: {sizes!r}[str(dim.name)] for dim in kernel.dims}}
        results.append(run_kernel(kernel, inputs, sizes))
    assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))
'''
