"""Uniform: points at random, none twice.

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

from plica.search.policy.fold import Known, Policy
from plica.search.space import Point, Space

__all__ = ["Policy", "Uniform"]


@frozen
class Uniform:
    """Every sketch is equally likely, and every decision of it."""

    batch: int = 16

    @property
    def name(self) -> str:
        return f"random/{self.batch}"

    def start(self, space: Space) -> None:
        """Nothing is remembered."""

    def chosen(self, known: Known, memory: None, random: Random) -> tuple[None, Sequence[Point]]:
        """Points that have not been tried."""
        return None, known.fresh(random, self.batch)
