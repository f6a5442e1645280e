"""Lessons: observations of other work, mapped to this work's space.

    Lesson(space, log)                 the space of other work, and what was observed in it
    transported(point, of, into)       the point of one space that is most like one of another
    points_of_lessons(space, lessons, likeness)     points to begin with, the most promising first
    Precedent(form, trace)             what was fastest of work of which there are records alone
    similar_point(precedent, into)           how far its work is, and the point that is most like it

>>> from plica.search.policy.example import SQUARE
>>> transported(SQUARE.default, SQUARE, SQUARE) == SQUARE.default
True
>>> nearest(Tiles(28, 2, 64), (7, 8)), nearest(Tiles(28, 2, 64), (2, 28))
((4, 7), (1, 28))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import log2, prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.schedule.instruction import Decision
from plica.schedule.trace import Trace
from plica.search.observation import Observation
from plica.search.space import Point, Space
from plica.search.support import Support, Tiles

TOLD: Final = 6  # how many points of other work are looked for here

Likeness: TypeAlias = Callable[[Space, Space], float]  # the distance of two works


@frozen(eq=False)
class Lesson:
    """Observations in the space of other work."""

    space: Space
    log: tuple[Observation, ...]

    @property
    def ranked(self) -> tuple[Point, ...]:
        """What worked there, the fastest first."""
        cost = {each.point: each.cost for each in self.log if each.cost is not None}
        return tuple(sorted(cost, key=lambda each: cost[each]))


def points_of_lessons(space: Space, lessons: Sequence[Lesson], likeness: Likeness) -> list[Point]:
    """Points that were fast elsewhere, in this space: nearest work first, interleaved."""
    near = sorted(lessons, key=lambda each: likeness(each.space, space))
    turns: list[list[Point]] = []
    for lesson in near:
        mine: dict[Point, None] = {}
        for each in lesson.ranked:
            if (point := transported(each, lesson.space, space)) is not None:
                mine[point] = None
            if len(mine) == TOLD:
                break
        turns.append(list(mine))
    return round_robin(*turns)


def round_robin(*orders: Sequence[Point]) -> list[Point]:
    """The first of each, then the second of each, and so on; each point once."""
    rows = zip_longest(*orders)
    return list(dict.fromkeys([each for row in rows for each in row if each is not None]))


def transported(point: Point, of: Space, into: Space) -> Point | None:
    """The most similar point of another space, or None if it lacks the sketch."""
    there = of.sketches[point.sketch]
    number = next((n for n, sketch in enumerate(into.sketches) if sketch.name == there.name), None)
    if number is None:
        return None
    here = into.sketches[number]
    if len(here.supports) != len(there.supports):
        return Point(number, here.default)
    rows = zip(here.supports, point.decisions, here.default, strict=True)
    return Point(number, tuple([nearest(of, given, default) for of, given, default in rows]))


@frozen
class Precedent:
    """The fastest schedule of some work, as its record has it."""

    form: str
    trace: Trace


def similar_point(of: Precedent, into: Space) -> tuple[float, Point] | None:
    """The distance of a precedent's work from a space, by its tiled sizes, and the point most
    similar to its schedule; None if no sketch of its name has the same steps."""
    kinds, decided = _kinds(of.trace), of.trace.decisions()
    for number, here in enumerate(into.sketches):
        if here.name != of.form or _kinds(here.trace) != kinds:
            continue
        rows = list(zip(here.supports, [decided[n] for n in here.steps], here.default, strict=True))
        point = Point(number, tuple([nearest(*row) for row in rows]))
        sizes = [(prod(given), each.extent) for each, given, _ in rows if isinstance(each, Tiles)]
        return sum([abs(_size(one) - _size(other)) for one, other in sizes]), point
    return None


def _kinds(of: Trace) -> tuple[object, ...]:
    """The kinds of a trace's steps, independent of their operands, and which of them decide."""
    return tuple([(type(step.instruction), step.decision is None) for step in of.steps])


def points_of_precedents(space: Space, precedents: Sequence[Precedent]) -> list[Point]:
    """The fastest schedules of other work as points of this space, nearest work first."""
    near = [found for each in precedents if (found := similar_point(each, space)) is not None]
    ordered = sorted(near, key=lambda each: each[0])  # those that are as near as they came
    return list(dict.fromkeys([point for _, point in ordered]))[:TOLD]


def nearest(of: Support, decision: Decision, default: Decision = ()) -> Decision:
    """The member that is most like a decision; the default where none has as many parts."""
    if not (alike := [member for member in of.members if len(member) == len(decision)]):
        return default
    inner = 1 if isinstance(of, Tiles) and len(decision) > 1 else 0
    return min(alike, key=lambda each: (_apart(each[inner:], decision[inner:]), each))


def _apart(one: Decision, other: Decision) -> float:
    return sum([abs(_size(a) - _size(b)) for a, b in zip(one, other, strict=True)])


def _size(of: int) -> float:
    """Sizes compare by ratio; places and choices by difference."""
    return log2(of) if of >= 1 else of - 1.0
