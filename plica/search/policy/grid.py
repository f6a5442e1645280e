"""Grid: all points of a space, one after the other.

>>> from plica.search.policy.example import SQUARE
>>> policy = Policy(Grid(batch=2))
>>> state, points = policy.step(policy.begin(SQUARE, seed=0))
>>> points == tuple(SQUARE.points())[:2]
True
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import frozen

from plica.search.policy.fold import ObservedSpace, Policy, point_at
from plica.search.space import Point, Space

__all__ = ["Grid", "Policy"]


@frozen
class Grid:
    """In the order of the space; what is remembered is where it stands."""

    batch: int = 16

    @property
    def name(self) -> str:
        return f"grid/{self.batch}"

    def start(self, space: Space) -> int:
        """Before the first point."""
        return 0

    def chosen(
        self, known: ObservedSpace, memory: int, random: Random
    ) -> tuple[int, Sequence[Point]]:
        """The next points that have not been tried."""
        found = list[Point]()
        while len(found) < self.batch and memory < known.space.size:
            point = point_at(known.space, memory)
            if point not in known.taken:
                found.append(point)
            memory += 1
        return memory, found
