"""Normal forms of traces: the laws, and that a normal form makes the same program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.core.digest import digest
from plica.schedule import (
    ScheduleRefused,
    Trace,
    annotate,
    block,
    do,
    enter_postproc,
    fuse,
    loops,
    normalise,
    reorder,
    sample_perfect_tile,
    split,
    trace_of,
    unannotate,
    unroll,
)
from plica.schedule.do import Body, DoBlock
from plica.schedule.replay import scheduled
from plica.schedule.trace import handles
from tests.schedule.kernel import matmul
from tests.schedule.walk import moves, walked

FEW = settings(max_examples=max(5, settings().max_examples // 2))


def kinds_of(trace: Trace) -> list[str]:
    return [step.instruction.kind for step in trace.steps]


def normal(schedule: DoBlock) -> Trace:
    return normalise(trace_of(schedule, matmul()), matmul())


@FEW
@given(moves)
def test_the_normal_form_makes_the_same_program(choices: list[tuple[int, int]]) -> None:
    trace = walked(matmul(), choices)
    found = normalise(trace, matmul())
    assert digest(scheduled(found, matmul())) == digest(scheduled(trace, matmul()))
    assert normalise(found, matmul()) is found
    assert len(found) <= len(trace)


@FEW
@given(moves, st.integers(0, 99))
def test_steps_that_commute_have_one_order(choices: list[tuple[int, int]], pick: int) -> None:
    trace = normalise(walked(matmul(), choices), matmul())
    if len(trace) < 2:
        return
    at = pick % (len(trace) - 1)
    if any(each.step == at for each in handles(trace.steps[at + 1].instruction)):
        return
    order = (*range(at), at + 1, at, *range(at + 2, len(trace)))
    other = trace.only(order)
    assert other is not None
    try:
        same = digest(scheduled(other, matmul())) == digest(scheduled(trace, matmul()))
    except ScheduleRefused:
        return
    if same and {"loops", "block"}.isdisjoint(kinds_of(trace)[2:]):
        assert normalise(other, matmul()) is trace


@given(moves)
def test_dead_look_ups_go_for_every_program(choices: list[tuple[int, int]]) -> None:
    trace = walked(matmul(), choices)
    found = normalise(trace)
    assert scheduled(found, matmul()) is not None
    assert digest(scheduled(found, matmul())) == digest(scheduled(trace, matmul()))
    assert normalise(found) is found
    needed = {each.step for step in found.steps for each in handles(step.instruction)}
    assert all(n in needed or not s.instruction.pure for n, s in enumerate(found.steps))


def test_a_split_and_its_fuse_are_nothing() -> None:
    @do
    def there_and_back() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        i0, i1 = yield split(i, (2, 3))
        yield unroll(j)
        f = yield fuse(i0, i1)
        yield annotate(f, "pragma", "x")

    @do
    def straight() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield annotate(i, "pragma", "x")
        yield unroll(j)

    assert normal(there_and_back) is normal(straight)


def test_a_fuse_and_another_split_are_something() -> None:
    @do
    def around() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        f = yield fuse(i, j)
        yield split(f, (None, 4))

    assert kinds_of(normal(around)) == ["block", "loops", "fuse", "split"]


def test_a_handle_of_a_loop_that_is_gone_stands_for_no_other() -> None:
    @do
    def again() -> Body:
        c = yield block("C")
        _, j, _ = yield loops(c)
        j0, j1 = yield split(j, (None, 3))
        yield split(j1, (None, 2))
        yield split(j0, (None, 2))  # one of these gets the name that j1 had
        yield unroll(j1)

    with pytest.raises(ScheduleRefused, match="alive"):
        trace_of(again, matmul())


def test_reordering_back_is_nothing() -> None:
    @do
    def there_and_back() -> Body:
        c = yield block("C")
        i, j, k = yield loops(c)
        yield reorder(j, i)
        yield split(k, (None, 2))
        yield reorder(i, j)

    assert kinds_of(normal(there_and_back)) == ["block", "loops", "split"]


def test_taking_back_what_was_said_is_nothing() -> None:
    @do
    def there_and_back() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield annotate(i, "pragma", "x")
        yield unroll(j)
        yield unannotate(i, "pragma")

    assert kinds_of(normal(there_and_back)) == ["block", "loops", "unroll"]


def test_asking_twice_is_asking_once() -> None:
    @do
    def twice() -> Body:
        for _ in range(2):
            c = yield block("C")
            i, j, _ = yield loops(c)
        yield unroll(i)
        yield unroll(j)

    assert kinds_of(normal(twice)) == ["block", "loops", "unroll", "unroll"]


def test_decisions_that_nothing_uses_go_and_marks_stay() -> None:
    @do
    def decided() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield sample_perfect_tile(i, 2)
        two = yield sample_perfect_tile(j, 2)
        yield split(j, two)
        yield enter_postproc()

    expected = ["block", "loops", "sample_perfect_tile", "split", "enter_postproc"]
    assert kinds_of(normalise(trace_of(decided, matmul()))) == expected
    assert "enter_postproc" in kinds_of(normal(decided))
