"""Coordinate descent: from a point to its neighbours, as long as one of them is faster.

The neighbours of the incumbent are tried; it moves to the fastest of them if that one is faster by
more than chance explains.  Where none is, neighbours of neighbours are tried; where that does not
help either, the search begins again elsewhere.

>>> from plica.search.policy.example import SQUARE, cost
>>> from plica.search.policy.trial import best_of
>>> best_of(Policy(Descent()), SQUARE, cost, trials=60, seed=0)
1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import evolve, frozen

from plica.search.observation import Observation, is_faster
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.space import Point, Space

__all__ = ["Descent", "Policy"]


@frozen
class Footing:
    """Where a descent stands, and how far around it looks."""

    at: Point
    reach: int = 1


@frozen
class Descent:
    """From the default of the space; how many at once, how far around."""

    batch: int = 16
    reach: int = 2

    @property
    def name(self) -> str:
        return f"descent/{self.batch}/{self.reach}"

    def start(self, space: Space) -> Footing:
        """At the point that needs no search."""
        return Footing(space.default)

    def chosen(
        self, known: ObservedSpace, memory: Footing, random: Random
    ) -> tuple[Footing, Sequence[Point]]:
        """Where it stands now, and what is tried around it."""
        if memory.at not in known.taken:
            return memory, [memory.at]
        memory = descended(known, memory)
        while memory.reach <= self.reach:
            if left := [each for each in around(known, memory) if each not in known.taken]:
                random.shuffle(left)
                return memory, left[: self.batch]
            memory = evolve(memory, reach=memory.reach + 1)
        elsewhere = known.fresh(random, 1)
        return (Footing(elsewhere[0]) if elsewhere else memory), elsewhere


def descended(known: ObservedSpace, footing: Footing) -> Footing:
    """The fastest point known within reach, if it is faster than the one it stands at."""
    here = known.taken[footing.at]
    near = [known.taken[each] for each in around(known, footing) if each in known.taken]
    best = min(near, key=_cost, default=here)
    return Footing(best.point) if is_faster(best, here) else footing


def _cost(of: Observation) -> float:
    return float("inf") if of.cost is None else of.cost


def around(known: ObservedSpace, footing: Footing) -> list[Point]:
    """The points within so many steps."""
    found = {footing.at: None}
    edge = [footing.at]
    for _ in range(footing.reach):
        near = [next_to for each in edge for next_to in known.space.neighbours(each)]
        edge = [each for each in dict.fromkeys(near) if each not in found]
        found.update(dict.fromkeys(edge))
    return list(found)[1:]
