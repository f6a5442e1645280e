"""sample_categorical: one of several numbers, as often as was said."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.schedule import block, do, loops, replay, sample_categorical, split, trace_of
from plica.schedule.do import Body
from plica.schedule.problem import ScheduleRefused
from tests.schedule.hostile import refusal
from tests.schedule.kernel import matmul


@do
def chosen(candidates: tuple[int, ...], odds: tuple[float, ...] | None = None) -> Body:
    i, _, _ = yield loops((yield block("C")))
    n = yield sample_categorical(candidates, odds)
    yield split(i, (None, n))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True), st.integers(0, 99))
def test_the_decision_is_a_candidate_and_replays(candidates: list[int], seed: int) -> None:
    trace = trace_of(chosen(tuple(candidates)), matmul(), seed=seed)
    (decided,) = trace.decisions()[2]
    assert decided in candidates
    assert trace is trace_of(chosen(tuple(candidates)), matmul(), seed=seed)
    replay(trace, matmul())


def test_what_has_no_probability_is_never_chosen_but_may_be_given() -> None:
    drawn = [trace_of(chosen((1, 2, 3), (0.5, 0, 0.5)), matmul(), seed=s) for s in range(30)]
    assert {trace.decisions()[2] for trace in drawn} == {(1,), (3,)}
    replay(drawn[0].with_decision(2, (2,)), matmul())


def test_refusals() -> None:
    def of(candidates: tuple[int, ...], odds: tuple[float, ...]) -> str:
        def schedule() -> Body:
            yield sample_categorical(candidates, odds)

        return refusal(matmul(), schedule)

    assert of((), ()) == "candidates"
    assert of((2, 2), (0.5, 0.5)) == "candidates"
    assert of((2, 3), (0.5,)) == "probabilities"
    assert of((2, 3), (0.0, 0.0)) == "probabilities"
    assert of((2, 3), (1.0, -1.0)) == "probabilities"
    trace = trace_of(chosen((2, 3)), matmul())
    with pytest.raises(ScheduleRefused, match="support"):
        replay(trace.with_decision(2, (4,)), matmul())
