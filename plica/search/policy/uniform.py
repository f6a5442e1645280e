"""Uniform: points at random, none twice.

Every point of the space is equally likely; or every sketch, and then every decision of it, which
finds small sketches among large ones.

>>> from plica.search.policy.example import SQUARE
>>> policy = Policy(Uniform(batch=4))
>>> _, points = policy.step(policy.begin(SQUARE, seed=0))
>>> len(points), all(SQUARE.holds(each) for each in points)
(4, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import frozen

from plica.search.policy.fold import ObservedSpace, Policy, point_at
from plica.search.space import Point, Space

__all__ = ["Policy", "Uniform"]


@frozen
class Uniform:
    """How many at once, and whether every sketch is equally likely."""

    batch: int = 16
    by_sketch: bool = False

    @property
    def name(self) -> str:
        return f"random/{self.batch}" + ("/sketch" if self.by_sketch else "")

    def start(self, space: Space) -> None:
        """Nothing is remembered."""

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """Points that have not been tried."""
        size = known.space.size
        found = dict[Point, None]()
        if not self.by_sketch:
            drawn = [point_at(known.space, random.randrange(size)) for _ in range(self.batch)]
            found = dict.fromkeys([each for each in drawn if each not in known.taken])
        return None, [*found, *known.fresh(random, self.batch - len(found), tuple(found))]
