"""Twins: candidates that are the same program are measured once, and nothing else changes."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from plica.codegen.lower.passes import lower
from plica.core import digest
from plica.schedule.default import Machine
from plica.schedule.replay import scheduled
from plica.search.policy.example import SQUARE
from plica.search.record.database import Database
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import Task
from plica.search.tune_loop import tuned
from plica.search.tuned import Tuned
from plica.search.twin import twin_class, twins
from tests.search.synthetic import RUN, SUBJECTS, Synthetic
from tests.search.work import conv, product

MACHINE = Machine(512, 32)


def lowered_digest(space: Space, point: Point) -> str:
    sketch = space.sketches[point.sketch]
    return digest(lower(scheduled(space.trace(point), sketch.kernel), "cpu"))


def test_twins_lower_to_one_kernel() -> None:
    points = list(SQUARE.points())[::7]
    _, found = twins(SQUARE, points, {})
    assert found
    for twin, first in list(found.items())[:8]:
        assert lowered_digest(SQUARE, twin) == lowered_digest(SQUARE, first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [product(256, 256, 256), conv(64, 64, 56, 3)], ids=["gemm", "conv2d"]
)
def test_most_candidates_of_equal_code_are_twins(work: Task) -> None:
    """The share of candidates that lower to a kernel that another one lowers to, which the laws do
    not find beforehand, is below one in a hundred; all that they find are."""
    space = space_of(work, MACHINE)
    drawn = [space.drawn(Random(n)) for n in range(300)]
    points = list(dict.fromkeys((*space.defaults(), *drawn)))
    _, found = twins(space, points, {})
    first = dict[str, Point]()
    same = [each for each in points if first.setdefault(lowered_digest(space, each), each) != each]
    assert set(found) <= set(same)
    print(f"{len(points)} candidates, {len(same)} of equal code, {len(found)} of them by the laws")
    assert len(same) - len(found) < 0.01 * len(points)


def test_a_decision_that_nothing_uses_makes_twins() -> None:
    one, other = SQUARE.default, SQUARE.mutated(SQUARE.default, Random(1))
    again = Point(0, (*one.decisions[:2], (1,)))
    assert twin_class(SQUARE, one) == twin_class(SQUARE, again) != twin_class(SQUARE, other)
    classes, found = twins(SQUARE, (one, other, again), {})
    assert found == {again: one}
    assert twins(SQUARE, (again,), classes)[1] == {again: one}


def test_a_search_measures_each_class_once() -> None:
    measurer = Synthetic()
    run = evolve(RUN, measurer=measurer, database=Database(), twins=twins)
    courses = tuned(SUBJECTS[:1], run, 30)
    (course,) = courses
    tried = [each for each in course.observations if each.twin is None]
    assert len({twin_class(SQUARE, each.point) for each in tried}) == len(tried)
    assert len(measurer.measured) == len(tried) == len(run.database)
    costs = {each.point: each.cost for each in tried}
    copies = [each for each in course.observations if each.twin is not None]
    assert course.twins == len(copies) > 0
    assert all(each.cost == costs[each.twin] for each in copies if each.twin is not None)
    assert f"not measured: {course.twins}, " in str(Tuned(courses))


def test_a_search_that_goes_on_finds_the_same_twins() -> None:
    whole = evolve(RUN, measurer=Synthetic(), database=Database(), twins=twins)
    wanted = tuned(SUBJECTS[:1], whole, 20)
    run = evolve(whole, measurer=Synthetic(), database=Database())
    tuned(SUBJECTS[:1], run, 8)
    again = evolve(run, measurer=(measurer := Synthetic()))
    assert tuned(SUBJECTS[:1], again, 20)[0].observations == wanted[0].observations
    assert len(measurer.measured) < len(wanted[0].observations)
