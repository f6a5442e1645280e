"""Minimise: the smallest trace that is still good.

    smallest = minimise(trace, matmul, good)     good: Module -> bool, e.g. "within 3 % of the best"

Steps are removed in ever smaller groups, each with its dependents; then decisions are simplified:
towards (extent, 1, 1 …) for tiles, towards 0 and 1 for single numbers.

Law: the result is 1-minimal.  It replays and is good; without any one of its steps (and what needs
it), or with any one decision replaced by one of `simpler`, it is refused or not good.

Blame: what each step of a trace does for the cost of a program.

for each in blame(trace, matmul, cost):       cost: Module -> float, e.g. a measured time
    print(each)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from statistics import mean, stdev

from attrs import frozen

from plica.ir.graph.module import Module
from plica.runtime.error import Diagnostic, InputError
from plica.schedule.diff import described
from plica.schedule.instruction import Decision
from plica.schedule.problem import Problem, ScheduleRefused
from plica.schedule.replay import ReplayState, begin, kernel_of, replay, taken, with_kernel
from plica.schedule.trace import Program, Step, Trace, check_traces, handles


def minimise(
    trace: Trace, program: Program, good: Callable[[Module], bool], kernel: str | None = None
) -> Trace:
    """The trace with as few steps and as simple decisions as keep it good."""
    check_traces(trace)
    whole, name, found = kernel_of(program, kernel)
    reached: list[ReplayState] = [begin(found)]
    current = Trace(())

    def accepted(candidate: Trace | None) -> bool:
        """Whether a trace is legal and good; if so, it is the one to go on from."""
        nonlocal current, reached
        if candidate is None or candidate is current:
            return False
        same = 0  # what a trace has in common with the last good one need not be replayed
        while same < min(len(current), len(candidate)):
            if current.steps[same] is not candidate.steps[same]:
                break
            same += 1
        state, steps = reached[same], reached[: same + 1]
        for step in candidate.steps[same:]:
            if isinstance(after := taken(state, step), Problem):
                return False
            state = after
            steps.append(state)
        if not good(with_kernel(whole, name, state.kernel)):
            return False
        current, reached = candidate, steps
        return True

    if accepted(trace) or (not trace.steps and good(whole)):
        while _fewer(lambda: current, accepted) or _plainer(lambda: current, accepted):
            pass
        return current
    hint = "Minimise with a predicate that holds for the whole trace."
    message = "The trace is refused on this program, or is not good itself."
    raise InputError(Diagnostic("not-good", message, suggestion=hint))


def without(trace: Trace, numbers: set[int]) -> Trace:
    """The trace without some steps and all that need them."""
    gone = set(numbers)
    for number, step in enumerate(trace.steps):
        if any(handle.step in gone for handle in handles(step.instruction)):
            gone.add(number)
    rest = trace.only(tuple(n for n in range(len(trace)) if n not in gone))
    assert rest is not None  # whatever needs a missing step is missing, too
    return rest


def simpler(decision: Decision) -> Iterator[Decision]:
    """Simpler decisions than one, the simplest first; none is simpler than itself."""
    if len(decision) == 1:
        (number,) = decision
        tried = (0, 1, number // 2, number - 1)
        yield from [(each,) for each in dict.fromkeys(tried) if abs(each) < abs(number)]
        return
    if any(each > 1 for each in decision[1:]):
        yield (prod(decision), *[1] * (len(decision) - 1))
        for at in range(len(decision) - 1, 0, -1):
            if decision[at] > 1:
                moved = list(decision)
                moved[0], moved[at] = moved[0] * moved[at], 1
                yield tuple(moved)


def _fewer(current: Callable[[], Trace], accepted: Callable[[Trace | None], bool]) -> bool:
    """Take steps away, in groups of half of them down to single ones, until none can go."""
    shrunk = False
    size = max(1, len(current()) // 2)
    while True:
        start, found = len(current()), False
        while start > 0:  # from the end: what needs much goes before what is needed
            low = max(0, start - size)
            if accepted(without(current(), set(range(low, start)))):
                found = shrunk = True
            start = min(low, len(current()))
        if size == 1 and not found:
            return shrunk
        size = max(1, size // 2)


def _plainer(current: Callable[[], Trace], accepted: Callable[[Trace | None], bool]) -> bool:
    """Make decisions simpler, one at a time, until none can be."""
    changed = False
    again = True
    while again:
        again = False
        for number, decision in current().decisions().items():
            if any(accepted(current().with_decision(number, each)) for each in simpler(decision)):
                again = changed = True
    return changed


@frozen(eq=False)
class Share:
    """The cost increase without a step; None if the remaining trace is illegal."""

    number: int
    step: Step
    gone: int  # how many steps are left out: it, and what needs it
    more: float | None
    spread: float = 0.0

    def __str__(self) -> str:
        cost = "needed" if self.more is None else f"{self.more:+.4g} ± {self.spread:.2g}"
        return f"{self.number} {described(self.step)}: {cost}"


def blame(
    trace: Trace,
    program: Program,
    cost: Callable[[Module], float],
    kernel: str | None = None,
    repeats: int = 1,
) -> tuple[Share, ...]:
    """The share of each step in the cost, in order; raises `ScheduleRefused` as a whole."""

    def costs(of: Trace) -> tuple[float, float]:
        module = replay(of, program, kernel)
        found = [cost(module) for _ in range(repeats)]
        return mean(found), stdev(found) if repeats > 1 else 0.0

    whole, noise = costs(trace)
    shares: list[Share] = []
    for number, step in enumerate(trace.steps):
        rest = without(trace, {number})
        gone = len(trace) - len(rest)
        try:
            here, spread = costs(rest)
        except ScheduleRefused:
            shares.append(Share(number, step, gone, None))
            continue
        shares.append(Share(number, step, gone, here - whole, (noise**2 + spread**2) ** 0.5))
    return tuple(shares)
