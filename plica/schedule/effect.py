"""Effects: what each hunk of a difference does to the program, and to its cost.

for hunk, effect in zip(difference.hunks, effects(difference, a, matmul)):
    print(effect.text)
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff

from attrs import frozen

from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.text.show.kernel import show_kernel
from plica.schedule.diff import Difference, apply
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import kernel_of, scheduled, with_kernel
from plica.schedule.trace import Program, Trace


@frozen
class Effect:
    """The program before and after a hunk as lines of a difference, and the cost of both."""

    lines: tuple[str, ...]
    refused: ScheduleRefused | None = None
    before: float | None = None
    after: float | None = None

    @property
    def text(self) -> str:
        """The effect as text."""
        if self.refused is not None:
            return f"refused: {self.refused}"
        return "\n".join(self.lines) or "the program stays the same"


def effects(
    difference: Difference,
    a: Trace,
    program: Program,
    kernel: str | None = None,
    cost: Callable[[Module], float | None] | None = None,
) -> tuple[Effect, ...]:
    """The effect of each hunk when they are made in order; `cost` may not know a program."""
    whole, name, found = kernel_of(program, kernel)

    def reached(trace: Trace) -> Kernel | ScheduleRefused:
        try:
            return scheduled(trace, found)
        except ScheduleRefused as refused:
            return refused

    def costs(of: Kernel | ScheduleRefused) -> float | None:
        if cost is None or not isinstance(of, Kernel):
            return None
        return cost(with_kernel(whole, name, of))

    result: list[Effect] = []
    before = reached(a)
    for count in range(1, len(difference.hunks) + 1):
        if isinstance(after := reached(apply(difference, a, range(count))), Kernel):
            old = _lines(before) if isinstance(before, Kernel) else []
            shown = unified_diff(old, _lines(after), "before", "after", lineterm="", n=2)
            result.append(Effect(tuple(shown), None, costs(before), costs(after)))
        else:
            result.append(Effect((), after, costs(before)))
        before = after
    return tuple(result)


def _lines(kernel: Kernel) -> list[str]:
    return show_kernel(kernel).splitlines()
