"""Forks: models whose nodes have other ranks where a condition holds, read once for each answer.

A row that cannot go on before it knows whether something holds (`Squeeze` of an axis that may be 1,
`If` whose sides differ in rank) asks `Forks.answer`; the model is read again for the other answer,
and what the readings give is joined by the language's own `if` (`plica.frontend.onnx.join`).  What
comes before a fork is read to the same terms every time, so nothing of it is there twice.
"""

from __future__ import annotations

from typing import NamedTuple

from plica.ir.graph.expression import Expr


class ForkAnswer(NamedTuple):
    """The answer at a fork, and the names that other readings took behind it."""

    answer: bool = False
    dims: frozenset[str] = frozenset()
    names: int = 0


class Fork(NamedTuple):
    """What is asked, and how many sizes were measured before."""

    condition: Expr
    measured: int


class Forks:
    """The forks of one reading, in the order in which it met them; it goes on as `ways` say, and
    takes every condition beyond these as one that does not hold.  It meets at most `most`."""

    def __init__(self, ways: tuple[ForkAnswer, ...], most: int) -> None:
        self.met: list[Fork] = []
        self.ways, self._most = list(ways), most

    def answer(self, condition: Expr) -> bool | None:
        """What was answered before, None where the fork is a new one."""
        for fork, way in zip(self.met, self.ways, strict=False):
            if fork.condition is condition:
                return way.answer
        return None

    def meet(self, condition: Expr, measured: int) -> ForkAnswer | None:
        """How a reading goes on at a new fork, None where there are too many."""
        if len(self.met) >= self._most:
            return None
        self.met.append(Fork(condition, measured))
        if len(self.ways) < len(self.met):
            self.ways.append(ForkAnswer())
        return self.ways[len(self.met) - 1]
