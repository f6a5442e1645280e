"""Lessons of other work: where they are in another space, and that they help."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from attrs import frozen
from hypothesis import given, strategies as st

from plica.schedule.default.machine import Machine
from plica.search.course import TuningSubject
from plica.search.feature.packs import Packs
from plica.search.observation import Observation
from plica.search.policy.cost_judge import Array, CostJudge, knobs
from plica.search.policy.example import SQUARE, cost, observed
from plica.search.policy.fold import Policy
from plica.search.policy.guided import Guided
from plica.search.policy.lesson import (
    Lesson,
    Precedent,
    nearest,
    points_of_lessons,
    points_of_precedents,
    similar_point,
    transported,
)
from plica.search.policy.taught import TAUGHT, lessons_of, precedents_of, taught
from plica.search.record.order import FINAL
from plica.search.record.record import Record, record
from plica.search.space import Point, Space
from plica.search.support import Among, OneOf, Support, Tiles
from tests.search.feature.sketches import tiled_sketch
from tests.search.synthetic import Task

HERE = Machine(512, 32)
SMALL, LARGE = (Space((tiled_sketch(*sizes),)) for sizes in ((24, 32, 36), (48, 64, 36)))


@given(st.integers(0, 999))
def test_what_is_transported_is_a_point_of_the_other_space(seed: int) -> None:
    for one, other in ((SMALL, LARGE), (LARGE, SMALL)):
        point = one.drawn(Random(seed))
        found = transported(point, one, other)
        assert found is not None
        assert other.holds(found)
        assert transported(point, one, one) == point


@pytest.mark.parametrize(
    ("support", "given_", "expected"),
    [
        (Tiles(28, 3, 64), (7, 2, 4), (2, 2, 7)),
        (OneOf((1, 4, 16, 64)), (10,), (16,)),
        (OneOf((-1, 0, 1)), (0,), (0,)),
        (Among(((1, 4), (2, 8), (4, 4))), (3, 4), (4, 4)),
    ],
)
def test_the_nearest_is_near_by_ratio(
    support: Support, given_: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert nearest(support, given_) == expected


def test_where_nothing_has_as_many_parts_the_default_is_taken() -> None:
    assert nearest(OneOf((1, 2)), (1, 2), (2,)) == (2,)


def test_a_sketch_that_is_not_there_has_no_points() -> None:
    assert transported(SMALL.default, SMALL, SQUARE) is None
    lesson = Lesson(SMALL, (Observation(SMALL.default, 1.0),))
    assert points_of_lessons(SQUARE, (lesson,), lambda a, b: 0) == []


def test_the_nearest_work_is_asked_first() -> None:
    points = list(SQUARE.points())[:2]
    lessons = [Lesson(SQUARE, (Observation(each, 1.0),)) for each in points]
    by = {id(lessons[0].space): 0}
    assert points_of_lessons(SQUARE, lessons, lambda one, _: by.get(id(one), 0)) == points
    slow = Lesson(SQUARE, (Observation(points[0], 2.0), Observation(points[1], 1.0)))
    assert points_of_lessons(SQUARE, (slow,), lambda one, other: 0.0) == points[::-1]


def test_what_was_fast_there_is_tried_first_here() -> None:
    log = tuple([Observation(each, cost(each)) for each in list(SQUARE.points())[::7]])
    best = Lesson(SQUARE, log).ranked[0]
    policy = taught(HERE, (Lesson(SQUARE, log),))
    seen = observed(policy, SQUARE, cost, 16, seed=0)
    assert [each.point for each in seen[:2]] == [SQUARE.default, best]
    assert min(each.cost or 9.0 for each in seen) <= cost(best)


@given(st.integers(0, 999))
def test_a_precedent_is_carried_by_its_steps_and_sizes(seed: int) -> None:
    point = LARGE.drawn(Random(seed))
    of = Precedent(LARGE.sketches[0].name, LARGE.trace(point))
    assert similar_point(of, LARGE) == (0.0, point)
    assert similar_point(of, SMALL) == (2.0, transported(point, LARGE, SMALL))


def test_what_has_other_steps_or_another_name_is_no_precedent() -> None:
    name, trace = SMALL.sketches[0].name, SMALL.trace(SMALL.default)
    assert similar_point(Precedent("other", trace), SMALL) is None
    assert similar_point(Precedent(name, trace.prefix(3)), SMALL) is None
    assert similar_point(Precedent(name, trace), SQUARE) is None


def test_the_precedent_of_the_nearest_sizes_comes_first() -> None:
    spaces = [Space((tiled_sketch(*sizes),)) for sizes in ((96, 64, 36), (24, 32, 36))]
    points = [each.drawn(Random(3)) for each in spaces]
    pairs = zip(spaces, points, strict=True)
    given_ = [Precedent(of.sketches[0].name, of.trace(point)) for of, point in pairs]
    assert points_of_precedents(LARGE, given_)[0] == transported(points[0], spaces[0], LARGE)


@frozen
class Cautious:
    """A model that thinks the less of points the more they differ from the usual one."""

    usual: tuple[float, ...]
    weight: float

    def fitted(self, packs: Packs, costs: Array) -> Cautious:
        return self

    def scores(self, packs: Packs) -> Array:
        found: Array = -self.weight * np.abs(packs.rows - np.array(self.usual)).sum(axis=1)
        return found


@pytest.mark.parametrize("weight", [0.0, 1.0, -1.0])
def test_a_precedent_is_tried_unless_it_is_thought_slower_than_the_default(weight: float) -> None:
    other = SMALL.drawn(Random(5))
    given_ = Precedent(SMALL.sketches[0].name, SMALL.trace(other))
    usual = tuple(knobs(LARGE, (LARGE.default,)).rows[0].tolist())
    judge = CostJudge("cautious", Cautious(usual, weight), knobs)
    seen = observed(Policy(Guided(judge, precedents=(given_,))), LARGE, lambda _: 1.0, 8, seed=0)
    (there,) = points_of_precedents(LARGE, (given_,))
    assert seen[0].point == LARGE.default != there
    assert (seen[1].point == there) is (weight <= 0)


def test_records_of_other_work_are_precedents() -> None:
    subjects = (TuningSubject(Task("a", 1), SQUARE),)
    slow, fast = sorted(list(SQUARE.points())[1:3], key=lambda each: -cost(each))
    records = (
        _record(slow, "guided", "other"),
        _record(fast, "guided", "other"),
        _record(fast, "guided", "synthetic-a"),
        _record(fast, TAUGHT + "/x", "third"),
        record("fourth", "here", "{}", "gone", (1.0,)),
    )
    (found,) = precedents_of(subjects, records)
    assert found == Precedent(SQUARE.sketches[fast.sketch].name, SQUARE.trace(fast))
    names = {taught(HERE, (), each).name for each in ((), (found,))}
    assert len(names) == 2


def test_the_same_lessons_are_the_same_run() -> None:
    lesson = Lesson(SQUARE, (Observation(SQUARE.default, 1.0),))
    other = Lesson(SQUARE, (Observation(SQUARE.default, 1.5),))
    names = [taught(HERE, each).name for each in ((lesson,), (lesson,), (other,), ())]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert all(each.startswith(TAUGHT) for each in names)


def _record(point: Point, policy: str, key: str = "synthetic-a") -> Record:
    form, trace = SQUARE.sketches[point.sketch].name, SQUARE.trace(point).to_json()
    return record(key, "here", trace, form, (cost(point),), policy=policy)


def test_records_of_other_policies_are_lessons() -> None:
    subjects = (TuningSubject(Task("a", 1), SQUARE), TuningSubject(Task("b", 1), SQUARE))
    one, other = list(SQUARE.points())[:2]
    stale = record("synthetic-a", "here", "{}", "gone", (1.0,))
    failed = record("synthetic-b", "here", "{}", "gone", error="crash")
    records = (
        _record(one, "guided"),
        _record(other, TAUGHT + "/x"),
        _record(other, "guided" + FINAL),
        _record(one, "guided", "unknown"),
        stale,
        failed,
    )
    (lesson,) = lessons_of(subjects, records)
    assert [each.point for each in lesson.log] == [one]
