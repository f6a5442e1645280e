"""enter_postproc: a mark in the trace, nothing in the kernel; no sampling after it."""

from __future__ import annotations

import pytest

from plica.core.digest import digest
from plica.schedule import (
    ScheduleRefused,
    Step,
    Trace,
    block,
    do,
    enter_postproc,
    loops,
    parallel,
    replay,
    sample_tile,
    split,
    trace_of,
    without_postproc,
)
from plica.schedule.do import Body
from tests.schedule.hostile import after
from tests.schedule.kernel import matmul


def test_it_changes_nothing() -> None:
    def schedule() -> Body:
        yield enter_postproc()

    assert digest(after(matmul(), schedule)) == digest(matmul())


@do
def sampled() -> Body:
    (i, *_) = yield loops((yield block("C")))
    outer, _ = yield split(i, sample_tile(2, max_inner=4))
    yield enter_postproc()
    yield parallel(outer)


def test_it_comes_once() -> None:
    @do
    def twice() -> Body:
        yield enter_postproc()
        yield enter_postproc()

    with pytest.raises(ScheduleRefused, match="once") as refused:
        trace_of(twice, matmul())
    assert refused.value.step == 1
    with pytest.raises(ScheduleRefused, match="once"):
        replay(Trace((Step(enter_postproc()), Step(enter_postproc()))), matmul())


def test_nothing_is_sampled_after_it() -> None:
    @do
    def late() -> Body:
        yield enter_postproc()
        (i, *_) = yield loops((yield block("C")))
        yield split(i, sample_tile(2, max_inner=4))

    with pytest.raises(ScheduleRefused, match="'sampling'"):
        trace_of(late, matmul())
    trace = trace_of(sampled, matmul())
    steps = list(trace.steps)
    at = next(n for n, each in enumerate(steps) if each.instruction.ends_sampling)
    moved = Trace((*trace.prefix(1).steps, Step(enter_postproc())))
    with pytest.raises(ScheduleRefused, match="'sampling'"):
        replay(Trace((*moved.steps, *shifted(trace, 1, at))), matmul())


def shifted(trace: Trace, start: int, end: int) -> tuple[Step, ...]:
    """Some steps of a trace behind one that was inserted before them."""
    from plica.schedule.trace import renumbered

    place = {old: old + (old >= start) for old in range(len(trace.steps))}
    return tuple([renumbered(each, place) for each in trace.steps[start:end]])


def test_what_comes_after_it_can_be_cut_off() -> None:
    trace = trace_of(sampled, matmul())
    before = without_postproc(trace)
    assert len(before) == len(trace) - 2
    assert without_postproc(before) is before
    assert digest(replay(before, matmul())) != digest(replay(trace, matmul()))
