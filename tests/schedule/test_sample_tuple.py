"""sample_tuple: numbers that go together."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.schedule import Trace, block, do, loops, replay, sample_tuple, split, trace_of
from plica.schedule.do import Body
from plica.schedule.problem import ScheduleRefused
from tests.schedule.hostile import refusal
from tests.schedule.kernel import matmul

PAIRS = ((1, 2), (2, 3), (4, 1))


@do
def tiled(tuples: tuple[tuple[int, ...], ...] = PAIRS) -> Body:
    i, j, _ = yield loops((yield block("C")))
    a, b = yield sample_tuple(tuples)
    yield split(i, (None, a))
    yield split(j, (None, b))


@given(st.integers(0, 99))
def test_the_decision_is_one_of_the_tuples_and_replays(seed: int) -> None:
    trace = trace_of(tiled, matmul(), seed=seed)
    assert trace.decisions()[2] in PAIRS
    assert trace is trace_of(tiled, matmul(), seed=seed)
    assert Trace.from_json(trace.to_json()) is trace
    assert Trace.from_python(trace.to_python()) is trace
    replay(trace, matmul())


def test_refusals() -> None:
    def of(tuples: tuple[tuple[int, ...], ...]) -> str:
        def schedule() -> Body:
            yield sample_tuple(tuples)

        return refusal(matmul(), schedule)

    assert of(()) == "tuples"
    assert of(((),)) == "tuples"
    assert of(((1, 2), (1,))) == "tuples"
    assert of(((1, 2), (1, 2))) == "tuples"
    trace = trace_of(tiled, matmul())
    with pytest.raises(ScheduleRefused, match="support"):
        replay(trace.with_decision(2, (2, 2)), matmul())
    with pytest.raises(TypeError, match="tuple of tuples"):
        sample_tuple((1, 2))  # type: ignore[arg-type]
