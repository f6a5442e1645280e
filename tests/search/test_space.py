"""Spaces: points are traces, neighbours are near, and everything random is a function of a seed."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
from hypothesis import given, strategies as st

from plica.schedule import (
    ScheduleRefused,
    block,
    do,
    loops,
    reorder,
    sample_categorical,
    sample_tile,
    split,
    trace_of,
    unroll,
)
from plica.schedule.bisect import agree
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from plica.search.space import Point, Space, sketch
from plica.search.support import OneOf, Tiles
from tests.schedule.kernel import matmul

KERNEL = matmul(12, 8, 6)


@do
def tiled() -> Body:
    i, j, k = yield loops((yield block("C")))
    i0, i1 = yield split(i, sample_tile(2, max_inner=6))
    j0, j1 = yield split(j, sample_tile(2, max_inner=8))
    yield reorder(i0, j0, k, i1, j1)
    yield unroll(j1)


@do
def cut() -> Body:
    _, _, k = yield loops((yield block("C")))
    factor = yield sample_categorical((1, 2, 4))
    yield split(k, (None, factor))


def space() -> Space:
    made = [(name, trace_of(of, KERNEL)) for name, of in (("tiled", tiled), ("cut", cut))]
    return Space(tuple([sketch(name, KERNEL, trace) for name, trace in made]))


tiles = st.builds(Tiles, st.integers(1, 96), st.integers(1, 3), st.integers(1, 16))


@given(tiles)
def test_tiles_are_all_products(of: Tiles) -> None:
    found = of.members
    assert len(set(found)) == len(found)
    assert all(of.holds(each) and prod(each) == of.extent for each in found)
    if of.parts == 2:
        every = [(of.extent // b, b) for b in range(1, of.extent + 1) if of.extent % b == 0]
        assert sorted(found) == sorted(each for each in every if each[1] <= of.max_inner)


@given(tiles)
def test_neighbours_are_mutual(of: Tiles) -> None:
    for each in of.members:
        for near in of.neighbours(each):
            assert of.holds(near)
            assert each in of.neighbours(near)


@given(st.lists(st.integers(-5, 5), min_size=1, unique=True))
def test_neighbours_among_numbers(numbers: list[int]) -> None:
    of = OneOf(tuple(numbers))
    for each in of.members:
        assert all(each in of.neighbours(near) for near in of.neighbours(each))


@given(st.integers(0, 2**32))
def test_everything_random_stays_inside(seed: int) -> None:
    here, random = space(), Random(seed)
    one, other = here.drawn(random), here.drawn(random)
    for point in (one, here.mutated(one, random), here.crossed(one, other, random)):
        assert here.holds(point)
    assert all(here.holds(near) for near in here.neighbours(one))
    assert here.drawn(Random(seed)) == one


def test_every_point_is_a_schedule_that_means_the_same() -> None:
    here = space()
    points = list(here.points())
    assert len(points) == len(set(points)) == here.size
    for point in points:
        assert agree(KERNEL, scheduled(here.trace(point), KERNEL))


def test_defaults_are_what_the_traces_decide() -> None:
    here = space()
    assert here.default == here.defaults()[0]
    for point, each in zip(here.defaults(), here.sketches, strict=True):
        assert here.trace(point) is each.trace


def test_a_point_elsewhere_is_not_held() -> None:
    here = space()
    assert not here.holds(Point(7, ()))
    assert not here.holds(Point(0, ((5, 5), (4, 2))))


def test_a_trace_that_is_illegal_is_no_sketch() -> None:
    @do
    def wider() -> Body:
        _, _, k = yield loops((yield block("C")))
        yield split(k, (None, 4))

    trace = trace_of(wider, KERNEL)
    with pytest.raises(ScheduleRefused):
        sketch("elsewhere", matmul(3, 3, 3), trace.append(trace.steps[-1]))
