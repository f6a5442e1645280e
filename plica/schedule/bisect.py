"""Bisect: the step of a trace that makes a program bad.

    found = bisect(trace, matmul)             the first step that changes what it computes
    found = bisect(trace, matmul, bad)        bad: Module -> bool, whatever is not wanted
    found.number, found.step                  the first step after which it is bad

For a trace of n steps, `bad` is called at most ceil(log2 n) + 1 times, assuming that the
unscheduled program is good and that later steps do not repair a broken one.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff

from attrs import frozen

from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.runtime.late import late
from plica.runtime.notebook import preformatted
from plica.schedule.diff import described
from plica.schedule.replay import ReplayState, begin, kernel_of, states, with_kernel
from plica.schedule.trace import Program, Step, Trace, check_traces


@frozen(eq=False)
class Culprit:
    """The first step after which a program is bad, the programs before and after, and the cost of
    the search."""

    number: int
    step: Step
    before: Module
    after: Module
    asked: int

    @property
    def changes(self) -> list[str]:
        """The step's effect as a unified diff of the program's text."""
        old, new = (str(each).splitlines() for each in (self.before, self.after))
        return list(unified_diff(old, new, "before", "after", lineterm="", n=2))

    def __str__(self) -> str:
        head = f"Step {self.number} is the first bad one: {described(self.step)}"
        return "\n".join([f"{head} (asked {self.asked} times).", *self.changes])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def bisect(
    trace: Trace,
    program: Program,
    bad: Callable[[Module], bool] | None = None,
    kernel: str | None = None,
) -> Culprit | None:
    """The step that makes the program bad, or None if it is not bad at the end.

    By default, bad means different results. Raises `ScheduleRefused` if the trace does not replay.
    """
    check_traces(trace)
    whole, name, found = kernel_of(program, kernel)
    if bad is None:
        bad = _differing(found, str(name.name))
    # One replay gives the program after every step: they share all that did not change.
    reached: list[ReplayState] = [begin(found), *states(trace, found)]

    def after(steps: int) -> Module:
        return with_kernel(whole, name, reached[steps].kernel)

    low, high = 0, len(trace)
    if high == 0 or not bad(after(high)):
        return None
    asked = 1
    while high - low > 1:
        middle = (low + high) // 2
        asked += 1
        if bad(after(middle)):
            high = middle
        else:
            low = middle
    return Culprit(low, trace.steps[low], after(low), after(high), asked)


def _differing(found: Kernel, name: str) -> Callable[[Module], bool]:
    agree = late("plica.schedule.oracle:agree")
    return lambda module: not agree(found, kernel_of(module, name)[2])
