"""Opened traces decide what they decided, variants mean the same or are refused."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.loop.statement import Kernel
from plica.schedule import (
    ScheduleRefused,
    block,
    decompose_reduction,
    do,
    fuse,
    loops,
    parallel,
    reorder,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.bisect import agree
from plica.schedule.do import Body
from plica.schedule.primitive.sample import SampleTuple
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.search.sketch.template import closed, opened
from plica.search.sketch.tiling import tiling
from plica.search.sketch.variant import banded, spread, turned, written
from plica.search.space import Space, sketch
from tests.schedule.kernel import matmul
from tests.search.work import SMALL

KERNEL = matmul(12, 8, 6)


@do
def tiled(rows: int = 3, lanes: int = 4) -> Body:
    total = yield block("C")
    i, j, k = yield loops(total)
    i0, i1 = yield split(i, (None, rows))
    j0, j1 = yield split(j, (None, lanes))
    yield reorder(i0, j0, k, i1, j1)
    yield decompose_reduction(total, k)
    yield unroll(i1)
    yield vectorize(j1)
    yield parallel((yield fuse(i0, j0)))


@do
def untiled() -> Body:
    i, j, k = yield loops((yield block("C")))
    yield reorder(i, j, k)


TRACE = trace_of(tiled, KERNEL)
PLAIN = trace_of(untiled, KERNEL)


def members(of: Trace) -> list[tuple[tuple[int, ...], ...]]:
    steps = [each.instruction for each in of.steps]
    return [each.tuples for each in steps if isinstance(each, SampleTuple)]


def test_an_opened_trace_makes_the_same_kernel() -> None:
    found = opened(TRACE, KERNEL, registers=16)
    assert scheduled(found, KERNEL) is scheduled(TRACE, KERNEL)
    assert [found.steps[0].decision] == [(3,)]
    assert members(found) == [((2,), (3,), (4,), (6,))]  # 12 sums would need more registers
    assert closed(found) is TRACE
    assert closed(found.with_decision(0, (6,))) is trace_of(tiled(6), KERNEL)


def test_what_stands_for_lanes_stays() -> None:
    only_lanes = trace_of(tiled(1, 4), KERNEL)
    assert opened(only_lanes, KERNEL, 16) is only_lanes


@given(st.integers(0, 99))
@settings(max_examples=min(10, settings().max_examples))
def test_all_points_of_an_opened_trace_are_schedules(seed: int) -> None:
    space = Space((sketch("opened", KERNEL, opened(TRACE, KERNEL, 16)),))
    point = list(space.points())[seed % space.size]
    assert agree(KERNEL, scheduled(space.trace(point), KERNEL))


def test_a_factor_of_a_window_divides_what_it_cuts() -> None:
    @do
    def both() -> Body:
        i, _, _ = yield loops((yield block("C")))
        _, _, inner = yield split(i, (None, 2, 3))
        yield unroll(inner)

    trace = trace_of(both, KERNEL)
    (tuples,) = members(opened(trace, KERNEL, 16))
    assert (2, 3) in tuples
    assert all(12 % prod(each) == 0 and min(each) > 1 for each in tuples)


@pytest.mark.parametrize(
    ("variant", "trace", "count"),
    [(turned, TRACE, 1), (banded, TRACE, 0), (banded, PLAIN, 1), (written, PLAIN, 1),
     (written, TRACE, 1), (turned, PLAIN, 1), (spread, TRACE, 0), (spread, PLAIN, 0)],
)  # fmt: skip
def test_variants_mean_the_same(
    variant: Callable[[Trace, Kernel], tuple[Trace, ...]], trace: Trace, count: int
) -> None:
    found = variant(trace, KERNEL)
    assert len(found) == count
    for each in found:
        assert each is not trace
        assert agree(KERNEL, scheduled(each, KERNEL))


def test_cores_may_share_fewer_loops() -> None:
    @do
    def shared() -> Body:
        i, j, _ = yield loops((yield block("C")))
        i0, i1 = yield split(i, (None, 3))
        yield parallel((yield fuse(i0, i1, j)))

    trace = trace_of(shared, KERNEL)
    (found,) = spread(trace, KERNEL)
    assert agree(KERNEL, scheduled(found, KERNEL))


def test_a_trace_that_is_illegal_is_refused() -> None:
    with pytest.raises(ScheduleRefused):
        opened(trace_of(tiled(5, 4), matmul(10, 8, 6)).append(TRACE.steps[-1]), KERNEL, 16)


def test_tiles_at_several_levels_need_one_reduction() -> None:
    found = tiling(KERNEL, SMALL)
    assert found is not None
    assert agree(KERNEL, scheduled(found, KERNEL))
    assert tiling(scheduled(found, KERNEL), SMALL) is None
