"""Blame: what each step of a trace does for the cost of a program.

for each in blame(trace, matmul, cost):       cost: Module -> float, e.g. a measured time
    print(each)
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev

from attrs import frozen

from plica.ir.graph.module import Module
from plica.schedule.diff import described
from plica.schedule.minimise import without
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import replay
from plica.schedule.trace import Program, Step, Trace


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
