"""Strategies that learn no model: random points, a grid, genetic search, coordinate descent.

>>> from plica.search.policy.example import SQUARE, best_of, cost
>>> best_of(Policy(Descent()), SQUARE, cost, trials=60, seed=0)
1.0
>>> best_of(Policy(Genetic(population=24)), SQUARE, cost, trials=96, seed=1) < 1.3
True
>>> state, points = Policy(Grid(batch=2)).step(Policy(Grid(batch=2)).begin(SQUARE, seed=0))
>>> points == tuple(SQUARE.points())[:2]
True
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import evolve, frozen

from plica.search.observation import Observation, is_faster
from plica.search.policy.fold import ObservedSpace, Policy, point_at
from plica.search.space import Point

__all__ = ["Descent", "Footing", "Genetic", "Grid", "Policy", "Uniform", "around", "descended"]


@frozen
class Uniform:
    """Random points, none twice; `by_sketch` draws a sketch first, then its decisions."""

    batch: int = 16
    by_sketch: bool = False

    @property
    def name(self) -> str:
        return f"random/{self.batch}" + ("/sketch" if self.by_sketch else "")

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """Points that have not been tried."""
        size = known.space.size
        points = dict[Point, None]()
        if not self.by_sketch:
            drawn = [point_at(known.space, random.randrange(size)) for _ in range(self.batch)]
            points = dict.fromkeys([point for point in drawn if point not in known.taken])
        return None, [*points, *known.fresh(random, self.batch - len(points), tuple(points))]


@frozen
class Grid:
    """All points in the order of the space; it remembers the number of the next one."""

    batch: int = 16

    @property
    def name(self) -> str:
        return f"grid/{self.batch}"

    def chosen(
        self, known: ObservedSpace, memory: int | None, random: Random
    ) -> tuple[int, Sequence[Point]]:
        """The next points that have not been tried."""
        points, number = list[Point](), memory or 0
        while len(points) < self.batch and number < known.space.size:
            point = point_at(known.space, number)
            points += [] if point in known.taken else [point]
            number += 1
        return number, points


MAX_BREEDING_TRIES = 8  # how often a child that is known already is bred again


@frozen
class Genetic:
    """A random generation, then children of the fastest, crossed and mutated until they are new."""

    population: int = 32
    elite: int = 3
    mutation: float = 0.1  # how likely a child is mutated after crossing

    @property
    def name(self) -> str:
        return f"genetic/{self.population}/{self.elite}/{self.mutation}"

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """The next generation."""
        living = self._living(known)
        if len(living) < 2:
            return None, known.fresh(random, self.population)
        points = [point for point, _ in living]
        speeds = [speed for _, speed in living]
        children = dict[Point, None]()
        for _ in range(MAX_BREEDING_TRIES * self.population):
            if len(children) == self.population:
                break
            one, other = random.choices(points, speeds, k=2)
            child = known.space.crossed(one, other, random)
            if random.random() < self.mutation or child in known.taken:
                child = known.space.mutated(child, random)
            if child not in known.taken:
                children[child] = None
        missing = self.population - len(children)
        return None, [*children, *known.fresh(random, missing, tuple(children))]

    def _living(self, known: ObservedSpace) -> list[tuple[Point, float]]:
        """The last generation and the best of all before it, with their speeds."""
        parents = [*known.ranked[: self.elite], *known.log[-self.population :]]
        costs = {parent.point: parent.cost for parent in parents}
        return [(point, 1 / cost) for point, cost in costs.items() if cost is not None]


@frozen
class Footing:
    """The current position of a descent, and its radius."""

    at: Point
    reach: int = 1


@frozen
class Descent:
    """From the default to faster neighbours, then to theirs, then from a random point."""

    batch: int = 16
    reach: int = 2

    @property
    def name(self) -> str:
        return f"descent/{self.batch}/{self.reach}"

    def chosen(
        self, known: ObservedSpace, memory: Footing | None, random: Random
    ) -> tuple[Footing, Sequence[Point]]:
        """The new position, and the points to try around it."""
        footing = memory or Footing(known.space.default)
        if footing.at not in known.taken:
            return footing, [footing.at]
        footing = descended(known, footing)
        while footing.reach <= self.reach:
            if left := [p for p in around(known, footing) if p not in known.taken]:
                random.shuffle(left)
                return footing, left[: self.batch]
            footing = evolve(footing, reach=footing.reach + 1)
        elsewhere = known.fresh(random, 1)
        return (Footing(elsewhere[0]) if elsewhere else footing), elsewhere


def descended(known: ObservedSpace, footing: Footing) -> Footing:
    """The fastest known point within the radius, if it is faster than the current one."""
    here = known.taken[footing.at]
    near = [known.taken[point] for point in around(known, footing) if point in known.taken]
    best = min(near, key=_cost, default=here)
    return Footing(best.point) if is_faster(best, here) else footing


def _cost(of: Observation) -> float:
    return float("inf") if of.cost is None else of.cost


def around(known: ObservedSpace, footing: Footing) -> list[Point]:
    """The points within a given number of steps."""
    reached = {footing.at: None}
    edge = [footing.at]
    for _ in range(footing.reach):
        near = [neighbour for point in edge for neighbour in known.space.neighbours(point)]
        edge = [point for point in dict.fromkeys(near) if point not in reached]
        reached.update(dict.fromkeys(edge))
    return list(reached)[1:]
