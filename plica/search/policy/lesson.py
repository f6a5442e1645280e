"""Lessons: what was seen of other work, and where in the space of this work that is.

    Lesson(space, log)                 the space of other work, and what was observed in it
    transported(point, of, into)       the point of one space that is most like one of another
    told(space, lessons, likeness)     points to begin with, the most promising first

Spaces of like work have sketches of the same names, whose decisions stand in the same order.  What
was decided there is decided here, or the nearest to it that divides: sizes are compared by their
ratios, and of a tile only what is inside, for the outermost size is what is left of the extent.

>>> from plica.search.policy.example import SQUARE
>>> transported(SQUARE.default, SQUARE, SQUARE) == SQUARE.default
True
>>> nearest(Tiles(28, 2, 64), (7, 8)), nearest(Tiles(28, 2, 64), (2, 28))
((4, 7), (1, 28))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import log2
from typing import Final, TypeAlias

from attrs import frozen

from plica.schedule.instruction import Decision
from plica.search.observation import Observation
from plica.search.space import Point, Space
from plica.search.support import Support, Tiles

TOLD: Final = 6
"""How many points of other work are looked for here."""

Likeness: TypeAlias = Callable[[Space, Space], float]
"""How far the work of one space is from that of another."""


@frozen(eq=False)
class Lesson:
    """What was observed in the space of other work."""

    space: Space
    log: tuple[Observation, ...]

    @property
    def ranked(self) -> tuple[Point, ...]:
        """What worked there, the fastest first."""
        cost = {each.point: each.cost for each in self.log if each.cost is not None}
        return tuple(sorted(cost, key=lambda each: cost[each]))


def told(space: Space, lessons: Sequence[Lesson], likeness: Likeness) -> list[Point]:
    """What was fast elsewhere, as points of this space: of the nearest work first, by turns."""
    near = sorted(lessons, key=lambda each: likeness(each.space, space))
    turns: list[list[Point]] = []
    for lesson in near:
        mine: dict[Point, None] = {}
        for each in lesson.ranked:
            if (found := transported(each, lesson.space, space)) is not None:
                mine[found] = None
            if len(mine) == TOLD:
                break
        turns.append(list(mine))
    rows = [each for row in zip_longest(*turns) for each in row if each is not None]
    return list(dict.fromkeys(rows))


def transported(point: Point, of: Space, into: Space) -> Point | None:
    """The point of another space that is most like one; None where it has no such sketch."""
    there = of.sketches[point.sketch]
    number = next((n for n, each in enumerate(into.sketches) if each.name == there.name), None)
    if number is None:
        return None
    here = into.sketches[number]
    if len(here.supports) != len(there.supports):
        return Point(number, here.default)
    rows = zip(here.supports, point.decisions, here.default, strict=True)
    return Point(number, tuple([nearest(of, given, default) for of, given, default in rows]))


def nearest(of: Support, decision: Decision, default: Decision = ()) -> Decision:
    """The member that is most like a decision; the default where none has as many parts."""
    if not (alike := [each for each in of.members if len(each) == len(decision)]):
        return default
    inner = 1 if isinstance(of, Tiles) and len(decision) > 1 else 0
    return min(alike, key=lambda each: (_apart(each[inner:], decision[inner:]), each))


def _apart(one: Decision, other: Decision) -> float:
    return sum([abs(_size(a) - _size(b)) for a, b in zip(one, other, strict=True)])


def _size(of: int) -> float:
    """Sizes by their ratios; what is no size, a place or a choice, by its difference."""
    return log2(of) if of >= 1 else of - 1.0
