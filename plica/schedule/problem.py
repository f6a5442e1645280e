"""Problems: why a step is refused, as a value.

>>> late = Problem("divides", "the loop i", "a factor of 12", "5", "Leave one factor out.")
>>> print(ScheduleRefused(late, "split", 3))
step 3, the loop i: split is refused: its precondition 'divides' does not hold. [illegal-step]
  expected: a factor of 12
  found: 5
  suggestion: Leave one factor out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from attrs import field, frozen

from plica.analysis.site import Site
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Block, For, Kernel, Stmt
from plica.runtime.error import Diagnostic, Place, PlicaError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.text.show import show_kernel
    from plica.schedule.advice import advice

RenderLevel = Literal["detail", "fast", "none"]
"""How much of the kernel a refusal shows: all of it, the path to the place, nothing."""


def _named(place: str | Site[For] | Site[Block] | For | Block | Buffer) -> str:
    """A place in words: of a loop, a block or a buffer, its name."""
    match place:
        case Site(node):
            return _named(node)
        case For(var):
            return f"the loop {var.name}"
        case Block():
            return f"the block {place.label}"
        case Buffer(name):
            return f"the buffer {name}"
        case _:
            return place


@frozen
class Problem:
    """A violated precondition: its stable name, the place, the expected and the actual state."""

    precondition: str
    where: str = field(converter=_named)
    expected: str
    found: str
    suggestion: str | None = None


class ScheduleRefused(PlicaError):
    """A step of a trace is illegal at its place; the program before it is unchanged.

    `line` is where a do-block asked for it, `path` leads from the root of the kernel to the place,
    and `rendered` is the kernel with that place underlined, which a traceback shows as well.
    """

    def __init__(  # what is wrong, and where
        self,
        problem: Problem,
        kind: str,
        step: int | None = None,
        line: Place | None = None,
        place: Callable[[], RefusalPlace] | None = None,
    ) -> None:
        self.problem = problem
        self.kind = kind
        self.step = step
        self._place = place
        self._notes: list[str] | None = None
        self.line = line
        where = problem.where if step is None else f"step {step}, {problem.where}"
        message = f"{kind} is refused: its precondition {problem.precondition!r} does not hold."
        super().__init__(
            Diagnostic(
                "illegal-step",
                message,
                Place(node=where) if line is None else replace(line, node=where),
                problem.expected,
                problem.found,
                self.suggestion,
            )
        )

    @property
    def suggestion(self) -> str | None:
        """What to do about it: given by the step, or by its precondition."""
        return self.problem.suggestion or advice(self.problem.precondition)

    @property
    def path(self) -> tuple[str, ...]:
        """The loops and blocks from the root of the kernel to the place, or None."""
        return () if self._place is None else self._place().path

    def rendered(self, level: RenderLevel = "detail") -> str:
        """The kernel before the step with the place underlined, or the path to it (`fast`)."""
        if self._place is None or level == "none":
            return ""
        return self._place().text if level == "detail" else " / ".join(self.path)

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # `add_note` adds to this list
        """The notes of a traceback, computed on demand."""
        if self._notes is None:
            shown = self.rendered()
            self._notes = [shown] if shown else []
        return self._notes


# --- where a step is refused -------------------------------------------------------------------


@frozen(eq=False)
class RefusalPlace:
    """The kernel before a step, and the loops and blocks that the refusal is about."""

    kernel: Kernel
    sites: tuple[Site[For] | Site[Block], ...]

    @property
    def path(self) -> tuple[str, ...]:
        """From the root to the first of the places."""
        if not self.sites:
            return ()
        around = [stmt for stmt, _ in self.sites[0].above]
        return tuple(_steps((*around, self.sites[0].node)))

    @property
    def text(self) -> str:
        """The kernel as text, each place underlined."""
        lines = []
        for line in show_kernel(self.kernel, "kernel").splitlines():
            lines.append(line)
            if marks := [mark for site in self.sites for mark in _marks(line, site.node)]:
                under = [" "] * max(end for _, end in marks)
                for start, end in marks:
                    under[start:end] = "^" * (end - start)
                lines.append("".join(under))
        return "\n".join(lines)


def _steps(around: tuple[Stmt, ...]) -> Iterator[str]:
    for stmt in around:
        match stmt:
            case For(var):
                yield f"for {var.name}"
            case Block():
                yield f"block {stmt.label}"
            case _:
                continue


def _marks(line: str, node: For | Block) -> Iterator[tuple[int, int]]:
    """Where a line of a kernel speaks of a loop or of a block."""
    if isinstance(node, For):
        head = re.match(rf"\s*for [^:]*?\b({re.escape(str(node.var.name))})\b", line)
    else:
        head = re.match(rf"\s*with (block\(\"{re.escape(str(node.label))}\")", line)
    if head is not None:
        yield head.span(1)
