"""sample_partitioned_tile: factors whose inner part holds whole pieces."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given, strategies as st

from plica.schedule import Trace, block, do, loops, replay, sample_partitioned_tile, split, trace_of
from plica.schedule.do import Body
from plica.schedule.problem import ScheduleRefused
from tests.schedule.hostile import refusal
from tests.schedule.kernel import matmul


def schedule_of(parts: int, at: int, factor: int) -> Callable[[], Body]:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield split(i, (yield sample_partitioned_tile(i, parts, at, factor)))

    return schedule


tiled = do(schedule_of(3, 1, 2))
EXTENT = prod(trace_of(tiled, matmul()).decisions()[2])


@given(st.integers(0, 99), st.integers(2, 4), st.data())
def test_the_inner_part_is_a_multiple(seed: int, parts: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, parts - 1))
    factor = data.draw(
        st.sampled_from([each for each in range(1, EXTENT + 1) if not EXTENT % each])
    )
    trace = trace_of(do(schedule_of(parts, at, factor)), matmul(), seed=seed)
    decision = trace.decisions()[2]
    assert prod(decision) == EXTENT
    assert prod(decision[at:]) % factor == 0
    assert Trace.from_json(trace.to_json()) is trace
    assert Trace.from_python(trace.to_python()) is trace
    replay(trace, matmul())


def test_refusals() -> None:
    def of(parts: int, at: int, factor: int) -> str:
        return refusal(matmul(), schedule_of(parts, at, factor))

    assert of(2, 2, 1) == "parts"
    assert of(0, 0, 1) == "parts"
    assert of(2, 1, EXTENT + 1) == "divides"
    assert of(2, 1, 0) == "divides"
    trace = trace_of(tiled, matmul())
    with pytest.raises(ScheduleRefused, match="support"):
        replay(trace.with_decision(2, (EXTENT, 1, 1)), matmul())
