"""Sampling anew: stored traces without decisions, and decisions by somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.schedule import (
    ScheduleRefused,
    Trace,
    block,
    do,
    loops,
    replay,
    resample,
    sample_categorical,
    sample_tile,
    split,
    trace_of,
    undecided,
    unroll,
)
from plica.schedule.do import Body
from plica.schedule.instruction import Decision, Sampling, Scene
from tests.schedule.kernel import matmul


@do
def tiled() -> Body:
    i, j, _k = yield loops((yield block("C")))
    _, inner = yield split(i, sample_tile(2, max_inner=8))
    yield split(j, sample_tile(2, max_inner=8))
    (number,) = yield sample_categorical((1, 2, 4), (1.0, 1.0, 1.0))
    yield split(inner, (None, number))
    yield unroll(inner)


@do
def plain() -> Body:
    i, j, _k = yield loops((yield block("C")))
    yield split(i, sample_tile(2, max_inner=8))
    yield split(j, sample_tile(2, max_inner=8))


def stored(seed: int = 0) -> Trace:
    return trace_of(plain, matmul(), seed=seed)


def test_a_stored_trace_may_have_no_decisions() -> None:
    bare = undecided(stored())
    assert bare.decisions() == {}
    assert Trace.from_json(bare.to_json()) is bare
    assert Trace.from_python(bare.to_python()) is bare
    with pytest.raises(ScheduleRefused, match="'decided'") as refused:
        replay(bare, matmul())
    assert refused.value.suggestion is not None
    assert "resample" in refused.value.suggestion


@given(st.integers(0, 1000))
def test_the_seed_says_what_is_drawn(seed: int) -> None:
    bare = undecided(stored())
    made = resample(bare, matmul(), seed=seed)
    assert made is resample(bare, matmul(), seed=seed)
    assert made is trace_of(plain, matmul(), seed=seed)
    assert undecided(made) is bare
    replay(made, matmul())


def test_what_was_decided_stays() -> None:
    trace = stored(5)
    assert resample(trace, matmul(), seed=9) is trace
    assert digest(replay(resample(trace, matmul()), matmul())) == digest(replay(trace, matmul()))


def test_seeds_differ() -> None:
    bare = undecided(stored())
    assert len({resample(bare, matmul(), seed=each) for each in range(20)}) > 5


def test_a_provider_decides() -> None:
    asked: list[int] = []

    def largest(number: int, step: Sampling, scene: Scene, was: Decision | None) -> Decision | None:
        asked.append(number)
        return (3, 2) if number == 2 else None

    trace = stored(5)
    made = resample(trace, matmul(), provider=largest)
    assert asked == sorted(trace.decisions())
    assert made.decisions()[2] == (3, 2)
    assert made.decisions()[4] == trace.decisions()[4]
    with pytest.raises(ScheduleRefused, match="'support'"):
        resample(trace, matmul(), provider=lambda *_: (5, 7))
    with pytest.raises(ValueError, match="tuple of integers"):
        resample(trace, matmul(), provider=lambda *_: "no")  # type: ignore[arg-type]
