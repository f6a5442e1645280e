"""Supports: the decisions a sampling step of a trace may take, as data.

    Tiles     factors of an extent, the last of them not too large
    OneOf     one of several numbers
    Among     one of several tuples of numbers

A support lists its members and their neighbours: one prime factor moves to another part of a tile,
or a number moves to the next (of tuples: in one place, or in two of constant product).

>>> Tiles(12, 2, max_inner=4).members
((3, 4), (4, 3), (6, 2), (12, 1))
>>> Tiles(12, 2, max_inner=4).neighbours((6, 2))
((3, 4), (12, 1))
>>> OneOf((0, 16, 64)).neighbours((16,))
((0,), (64,))
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from attrs import frozen

from plica.ir.type import known
from plica.schedule.instruction import Decision, Sampling, Scene
from plica.schedule.primitive.sample import (
    SampleCategorical,
    SampleComputeLocation,
    SamplePerfectTile,
    SampleTuple,
    primes,
)


@frozen
class Tiles:
    """All ways to write an extent as a product of a given number of factors, the last at most
    `max_inner`."""

    extent: int
    parts: int
    max_inner: int

    @property
    def members(self) -> tuple[Decision, ...]:
        return _tiles(self.extent, self.parts, self.max_inner)

    def neighbours(self, of: Decision) -> tuple[Decision, ...]:
        """The members that differ by one prime factor in another part."""
        found: dict[Decision, None] = {}
        for source, factor in enumerate(of):
            for prime in dict.fromkeys(primes(factor)):
                for target in range(self.parts):
                    if target != source:
                        moved = list(of)
                        moved[source] //= prime
                        moved[target] *= prime
                        found[tuple(moved)] = None
        return tuple(sorted(each for each in found if self.holds(each)))

    def holds(self, decision: Decision) -> bool:
        """Whether a decision is a member."""
        product = 1
        for each in decision:
            product *= each
        small = self.parts == 1 or decision[-1] <= self.max_inner
        return len(decision) == self.parts and product == self.extent and small


@frozen
class OneOf:
    """A set of numbers, with adjacent ones as neighbours."""

    numbers: tuple[int, ...]

    @property
    def members(self) -> tuple[Decision, ...]:
        return tuple([(number,) for number in self.numbers])

    def neighbours(self, of: Decision) -> tuple[Decision, ...]:
        """The number before and the number after."""
        at = self.numbers.index(of[0])
        beside = (*self.numbers[max(0, at - 1) : at], *self.numbers[at + 1 : at + 2])
        return tuple([(each,) for each in beside])

    def holds(self, decision: Decision) -> bool:
        """Whether a decision is a member."""
        return len(decision) == 1 and decision[0] in self.numbers


@frozen
class Among:
    """A set of tuples of numbers.

    >>> Among(((1, 4), (1, 8), (2, 4), (4, 1))).neighbours((1, 4))
    ((1, 8), (2, 4), (4, 1))
    """

    tuples: tuple[Decision, ...]

    @property
    def members(self) -> tuple[Decision, ...]:
        return self.tuples

    def neighbours(self, of: Decision) -> tuple[Decision, ...]:
        """The members that differ by a neighbour in one component, or in two with the same
        product."""
        return _beside(self.tuples)[of]

    def holds(self, decision: Decision) -> bool:
        """Whether a decision is a member."""
        return decision in _beside(self.tuples)


Support: TypeAlias = Tiles | OneOf | Among


def support_of(step: Sampling, scene: Scene) -> Support | None:
    """The alternatives of a sampling step in a scene, or None if they cannot be listed."""
    match step:
        case SamplePerfectTile(loop, parts, max_inner):
            extent = known(scene.loop(loop).node.extent)
            return Tiles(extent, parts, max_inner) if extent else None
        case SampleCategorical(candidates, _):
            return OneOf(candidates)
        case SampleTuple(tuples):
            return Among(tuples)
        case SampleComputeLocation():
            return OneOf(tuple(step.places(scene)))
        case _:
            return None


@lru_cache(maxsize=4096)
def _tiles(extent: int, parts: int, max_inner: int) -> tuple[Decision, ...]:
    if parts == 1:
        return ((extent,),)
    found: list[Decision] = []
    for first in range(1, extent + 1):
        if extent % first == 0:
            rest = extent // first
            if parts == 2:
                found += [(first, rest)] if rest <= max_inner else []
            else:
                found += [(first, *more) for more in _tiles(rest, parts - 1, max_inner)]
    return tuple(found)


@lru_cache(maxsize=256)
def _beside(members: tuple[Decision, ...]) -> dict[Decision, tuple[Decision, ...]]:
    """Which members are near which."""
    near: dict[Decision, dict[Decision, None]] = {member: {} for member in members}
    lines: dict[tuple[int, ...], list[Decision]] = {}
    for member in members:
        for at, here in enumerate(member):
            lines.setdefault((at, *member[:at], *member[at + 1 :]), []).append(member)
            for other in range(at + 1, len(member)):
                rest = [n for m, n in enumerate(member) if m not in (at, other)]
                lines.setdefault((-1 - at, other, here * member[other], *rest), []).append(member)
    for line in lines.values():
        for one, next_ in pairwise(sorted(line)):
            near[one][next_] = None
            near[next_][one] = None
    return {each: tuple(sorted(found)) for each, found in near.items()}
