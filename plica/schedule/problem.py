"""Problems: why a step is refused, as a value.

>>> late = Problem("divides", "the loop i", "a factor of 12", "5", "Leave one factor out.")
>>> print(ScheduleRefused(late, "split", 3))
step 3, the loop i: split is refused: its precondition 'divides' does not hold. [illegal-step]
  expected: a factor of 12
  found: 5
  suggestion: Leave one factor out.
"""

from __future__ import annotations

from dataclasses import replace

from attrs import frozen

from plica.runtime.error import Diagnostic, Place, PlicaError


@frozen
class Problem:
    """A broken precondition: a stable word for it, where, what it asks for, what there is."""

    precondition: str
    where: str
    expected: str
    found: str
    suggestion: str | None = None


class ScheduleRefused(PlicaError):
    """A step of a trace is illegal where it is to be taken; the program before it is untouched.

    `line` is where a do-block asked for it.
    """

    def __init__(
        self, problem: Problem, kind: str, step: int | None = None, line: Place | None = None
    ) -> None:
        self.problem = problem
        self.kind = kind
        self.step = step
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
                problem.suggestion,
            )
        )
