"""Genetic: generations bred from what was measured best; no model.

Each generation takes parents by how fast they were measured to be, crosses them, and changes a
decision of the child now and then.  What has been tried already is not tried again: the child is
changed until it is new.

>>> from plica.search.policy.example import SQUARE, cost
>>> from plica.search.policy.trial import best_of
>>> best_of(Policy(Genetic(population=24)), SQUARE, cost, trials=96, seed=1) < 1.3
True
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import frozen

from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.space import Point, Space

__all__ = ["Genetic", "Policy"]


@frozen
class Genetic:
    """A first generation at random; then children of the fittest."""

    population: int = 32
    elite: int = 3
    mutation: float = 0.1  # how likely each child is changed after crossing

    @property
    def name(self) -> str:
        return f"genetic/{self.population}/{self.elite}/{self.mutation}"

    def start(self, space: Space) -> None:
        """Nothing is remembered: the log holds every generation."""

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """The next generation."""
        living = self._living(known)
        if len(living) < 2:
            return None, known.fresh(random, self.population)
        points = [each for each, _ in living]
        speeds = [speed for _, speed in living]
        found = dict[Point, None]()
        for _ in range(TRIES * self.population):
            if len(found) == self.population:
                break
            one, other = random.choices(points, speeds, k=2)
            child = known.space.crossed(one, other, random)
            if random.random() < self.mutation or child in known.taken:
                child = known.space.mutated(child, random)
            if child not in known.taken:
                found[child] = None
        missing = self.population - len(found)
        return None, [*found, *known.fresh(random, missing, tuple(found))]

    def _living(self, known: ObservedSpace) -> list[tuple[Point, float]]:
        """The last generation and the best of all before it, with their speeds."""
        last = known.log[-self.population :]
        kept = [*known.ranked[: self.elite], *last]
        return [
            (point, 1 / cost)
            for point, cost in {each.point: each.cost for each in kept}.items()
            if cost is not None
        ]


TRIES = 8  # how often a child that is known already is bred again
