"""Branch specialisation: a model whose ranks depend on a condition is read once for each answer."""

from __future__ import annotations

from typing import NamedTuple

from plica.ir.graph.expression import Expr


class BranchAnswer(NamedTuple):
    """The answer at a branch point, and the names that other readings took behind it."""

    answer: bool = False
    dims: frozenset[str] = frozenset()
    names: int = 0


class BranchPoint(NamedTuple):
    """The condition of a branch point, and the number of sizes measured before."""

    condition: Expr
    measured: int


class BranchPoints:
    """The branch points of one reading, in the order in which it came to them.

    The reading follows `answers`, and takes further conditions as false. There are at most `limit`.
    """

    def __init__(self, answers: tuple[BranchAnswer, ...], limit: int) -> None:
        self.points: list[BranchPoint] = []
        self.answers, self._limit = list(answers), limit

    def answer(self, condition: Expr) -> bool | None:
        """The recorded answer, or None at a new branch point."""
        for point, given in zip(self.points, self.answers, strict=False):
            if point.condition is condition:
                return given.answer
        return None

    def add(self, condition: Expr, measured: int) -> BranchAnswer | None:
        """The answer at a new branch point, or None if there are too many."""
        if len(self.points) >= self._limit:
            return None
        self.points.append(BranchPoint(condition, measured))
        if len(self.answers) < len(self.points):
            self.answers.append(BranchAnswer())
        return self.answers[len(self.points) - 1]
