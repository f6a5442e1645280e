"""Breeding: a population of points improved under a score; nothing is measured.

>>> from random import Random
>>> import numpy as np
>>> from plica.search.policy.example import SQUARE, cost
>>> best = bred(ObservedSpace(SQUARE), lambda points: -np.array([cost(p) for p in points]),
...     Random(0))[0]
>>> cost(best)
1.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from math import exp, isfinite
from random import Random
from typing import Final

from attrs import frozen

from plica.search.feature.featuriser import MIN_POINTS_FOR_FORMULAS, kind_of
from plica.search.policy.cost_judge import Score
from plica.search.policy.fold import ObservedSpace
from plica.search.space import Point, Space


@frozen
class Breeding:
    """How many, how often, how bold."""

    population: int = 512
    generations: int = 4
    mutation: float = 0.85
    measured: float = 0.2  # the share of the first population that has been measured
    fresh: int = 50  # how many of it are drawn at random, at least

    @property
    def name(self) -> str:
        """The numbers, for names of policies."""
        return f"{self.population}x{self.generations}-{self.mutation}-{self.measured}-{self.fresh}"


PRESSURE: Final = 4.0  # the best is e to this power likelier to be a parent than the worst
LOCAL: Final = 0.5  # how many of the changes go to a neighbour
KINDRED: Final = 0.25  # how many take each decision from one of two parents


def bred(
    known: ObservedSpace,
    score: Score,
    random: Random,
    settings: Breeding | None = None,
    *,
    sketches: Container[int] | None = None,
    effort: Effort | None = None,
) -> list[Point]:
    """Untried points, the best first; of some sketches alone, within an effort."""
    settings = settings or Breeding()
    space = known.space
    seeds = [each.point for each in known.ranked[: int(settings.measured * settings.population)]]
    strangers = max(settings.fresh, settings.population - len(seeds))
    population = [*seeds, *known.fresh(random, strangers, seeds)]
    if sketches is not None:
        population = [point for point in population if point.sketch in sketches]
    opinion = dict[Point, float]()
    effort = effort or Effort(known.space, known.taken)
    for generation in range(settings.generations + 1):
        population = [point for point in population if effort.affords(point)]
        unknown = [point for point in dict.fromkeys(population) if point not in opinion]
        opinion.update(zip(unknown, map(float, score(unknown)), strict=True))
        if generation == settings.generations or not population:
            break
        order = sorted(dict.fromkeys(population), key=lambda each: -opinion[each])
        weights = [exp(-PRESSURE * n / len(order)) for n in range(len(order))]
        parents = random.choices(order, weights, k=2 * settings.population)
        pairs = zip(parents[::2], parents[1::2], strict=True)
        population = [
            changed(space, one, other, random) if random.random() < settings.mutation else one
            for one, other in pairs
        ]
        if sketches is not None:
            population = [point for point in population if point.sketch in sketches]
    points = [point for point, of in opinion.items() if point not in known.taken and isfinite(of)]
    return sorted(points, key=lambda each: -opinion[each])


class Effort:
    """How much may still be featurised: measured points are free, and keys with formulas."""

    def __init__(self, space: Space, free: Container[Point], most: int = 1 << 16) -> None:
        self._space, self._free, self._left = space, free, most
        self._met: set[Point] = set()
        self._kinds: Counter[tuple[object, ...]] = Counter()

    def affords(self, point: Point) -> bool:
        """Whether a point can be thought of, too; from now on it is."""
        if point in self._met or point in self._free:
            return True
        kind = kind_of(self._space.sketches[point.sketch], point.decisions)
        if kind is None or self._kinds[point.sketch, kind] <= MIN_POINTS_FOR_FORMULAS:
            if not self._left:
                return False
            self._left -= 1
            self._kinds[point.sketch, kind] += 1
        self._met.add(point)
        return True


def changed(space: Space, one: Point, other: Point, random: Random) -> Point:
    """A child of two parents that is not quite like the first."""
    kind = random.random()
    if kind < LOCAL:
        return nudged(space, one, random)
    if kind < LOCAL + KINDRED:
        return space.crossed(one, other, random)
    return space.mutated(one, random)


def nudged(space: Space, point: Point, random: Random) -> Point:
    """One decision moved to a neighbour of it."""
    if not (supports := space.sketches[point.sketch].supports):
        return point
    at = random.randrange(len(supports))
    if not (near := supports[at].neighbours(point.decisions[at])):
        return point
    decisions = (*point.decisions[:at], random.choice(near), *point.decisions[at + 1 :])
    return Point(point.sketch, decisions)


def varied(ranked: Sequence[Point], count: int, weight: float = 0.5) -> list[Point]:
    """A number of points, best first, that are good and differ in their decisions.

    >>> points = [Point(0, ((1,), (n,))) for n in (1, 1, 2)] + [Point(0, ((2,), (2,)))]
    >>> varied(points[1:], 2, weight=2) == [points[1], points[3]]
    True
    """
    left = list(enumerate(dict.fromkeys(ranked)))
    covered = set[tuple[int, int, tuple[int, ...]]]()
    points = list[Point]()
    while left and len(points) < count:
        worth = [_worth(each, len(ranked), covered, weight) for each in left]
        _, point = left.pop(worth.index(max(worth)))
        points.append(point)
        covered.update(_knobs(point))
    return points


def _worth(
    of: tuple[int, Point], total: int, covered: set[tuple[int, int, tuple[int, ...]]], weight: float
) -> tuple[float, int]:
    rank, point = of
    knobs = _knobs(point)
    new = sum(knob not in covered for knob in knobs) / max(1, len(knobs))
    return (1 - rank / max(1, total)) + weight * new, -rank


def _knobs(point: Point) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(point.sketch, at, decision) for at, decision in enumerate(point.decisions)]
