"""What every instruction is held to: its fields, the handles it wants, what it gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import Malformed
from plica.runtime.error import PlicaError
from plica.schedule import (
    ScheduleRefused,
    Trace,
    add_unit_loop,
    annotate,
    block,
    cache_read,
    compute_at,
    decided,
    do,
    fuse,
    loop_partition,
    loops,
    record,
    replay,
    sample_categorical,
    sample_perfect_tile,
    sample_tile,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.do import Body
from plica.schedule.handle import Handle
from plica.schedule.trace import Step
from tests.schedule.hostile import refusal
from tests.schedule.kernel import matmul

WRONG: dict[str, tuple[str, Callable[[Handle, Handle], Any]]] = {
    "a block for a loop": ("handle-sort", lambda c, i: split(c, (None, 2))),
    "a loop for a block": ("handle-sort", lambda c, i: loops(i)),
    "one of several": ("handle-sort", lambda c, i: fuse(i, c)),
    "both": ("handle-sort", lambda c, i: compute_at(i, c)),
    "a loop for a number": ("handle-sort", lambda c, i: split(i, (None, i))),
    "a fraction": ("fields", lambda c, i: split(i, (None, 2.5))),  # type: ignore[arg-type]
    "a truth value": ("fields", lambda c, i: split(i, (None, True))),
    "a word": ("fields", lambda c, i: cache_read(c, "0")),  # type: ignore[arg-type]
    "parts": ("fields", lambda c, i: sample_perfect_tile(i, 2.0)),  # type: ignore[arg-type]
    "too large": ("fields", lambda c, i: split(i, (None, 10**30))),
    "too large below": ("fields", lambda c, i: loop_partition(i, (-(10**30), None))),
    "too large a product": ("factors", lambda c, i: split(i, (None, 2**40, 2**40))),
    "too many parts": ("parts", lambda c, i: sample_perfect_tile(i, 10**7)),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(case: str) -> None:
    word, asked = WRONG[case]

    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield asked(c, i)

    assert refusal(matmul(), schedule) == word


WRITTEN = re.compile(r"(?:block|loop|number) \d+\.\d+")


@given(st.data())
def test_a_step_that_is_given_something_else_is_refused_or_taken(data: st.DataObject) -> None:
    text = product_text()
    places = list(WRITTEN.finditer(text))
    place = data.draw(st.sampled_from(places))
    other = data.draw(st.sampled_from(sorted({each[0] for each in places})))
    changed = text[: place.start()] + other + text[place.end() :]
    with suppress(Malformed, ScheduleRefused):
        replay(Trace.from_json(changed), matmul())


@cache
def product_text() -> str:
    def schedule() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        copy = yield cache_read(c, 0)
        i0, i1 = yield split(i, sample_tile(2))
        yield compute_at(copy, i0)
        n = yield sample_categorical((2, 4))
        whole = yield fuse(i1, j)
        _, inner = yield split(whole, (None, n))
        yield vectorize(inner)
        yield annotate(c, "role", "main")

    return trace_of(do(schedule), matmul()).to_json()


def test_a_trace_that_was_read_with_a_block_for_a_loop() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield split(i, sample_tile(2))

    text = trace_of(do(schedule), matmul()).to_json()
    wrong = Trace.from_json(text.replace("loop 1.0", "block 0.0"))
    with pytest.raises(ScheduleRefused, match="handle-sort"):
        replay(wrong, matmul())
    numbers = '["number 2.0", "number 2.1"]'
    large = Trace.from_json(text.replace(numbers, f"[null, {10**30}]"))
    with pytest.raises(ScheduleRefused, match="numbers below"):
        replay(large, matmul())
    for each in ("[null, 2.5]", "[null, true]"):
        with pytest.raises(Malformed, match="factors"):
            Trace.from_json(text.replace(numbers, each))


def test_what_cannot_be_a_field() -> None:
    i = Handle(1, 0, "loop")
    with pytest.raises(TypeError, match=r"Annotate\.value cannot change later"):
        annotate(i, "software_pipeline_order", [1, 0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tuple of factors"):
        split(i, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tuple of numbers"):
        sample_categorical(3)  # type: ignore[arg-type]


def tiled() -> Body:
    i, _, _ = yield loops((yield block("C")))
    yield split(i, sample_tile(2))


@pytest.mark.parametrize("decision", [(3.0, 2.0), (True, 6), "ab", 5, ("3", 2), [6, 1]])
def test_decisions_are_integers(decision: Any) -> None:
    trace = trace_of(do(tiled), matmul())
    with pytest.raises(PlicaError, match="tuple of integers"):
        trace.with_decision(2, decision)
    with pytest.raises(PlicaError, match="a step that decides: 2"):
        trace.with_decision(1, (6, 1))
    assert Step(trace.steps[0].instruction) is trace.steps[0]
    if not isinstance(decision, list):
        with pytest.raises(PlicaError, match="tuple of integers"):
            trace_of(do(tiled), matmul(), decisions={2: decision})
        spoiled = Trace((*trace.steps[:2], Step(trace.steps[2].instruction, decision)))
        with pytest.raises(ScheduleRefused, match="decided"):
            replay(spoiled, matmul())


@pytest.mark.parametrize("number", [99, -1, "a", 2.0])
def test_decisions_are_of_steps_there_are(number: Any) -> None:
    with pytest.raises(PlicaError, match="There is no step"):
        trace_of(do(tiled), matmul()).with_decision(number, (6, 1))


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        ({0: (1,)}, "samples nothing"),
        ({9: (1,)}, "samples nothing"),
        ({-1: (1,)}, "number of the step"),
        ([(1,)], "number of the step"),
    ],
)
def test_decisions_for_what_does_not_sample(decisions: Any, said: str) -> None:
    with pytest.raises(PlicaError, match=said):
        trace_of(do(tiled), matmul(), decisions=decisions)
    i = Handle(1, 0, "loop")
    with pytest.raises(PlicaError, match="samples nothing"):
        decided(unroll(i), 1)  # type: ignore[arg-type]
    with pytest.raises(PlicaError, match="tuple of integers"):
        decided(sample_perfect_tile(i, 2), 3, 2.0)  # type: ignore[arg-type]
    trace = Trace((Step(vectorize(i), (1,)),))
    with pytest.raises(ScheduleRefused, match="known-handle"):
        replay(trace, matmul())


def test_one_thing_is_given_as_itself_several_as_a_tuple() -> None:
    @do
    def look() -> Body:
        c = yield block("C")
        around = yield loops(c)
        one = yield fuse(*around[:2])
        unit = yield add_unit_loop(c)
        number = yield sample_categorical((2, 3))
        parts = yield split(one, (None, number))
        nothing = yield unroll(unit)
        return around, one, unit, number, parts, nothing

    around, one, unit, number, parts, nothing = record(look, matmul()).result
    assert [each.sort for each in (one, unit, number)] == ["loop", "loop", "number"]
    assert [len(each) for each in (around, parts)] == [3, 2]
    assert nothing is None


def test_no_loops_are_an_empty_tuple() -> None:
    @do
    def look() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        outer = yield add_unit_loop(i)
        yield unroll(outer)
        return (yield loops(c))

    assert len(record(look, matmul()).result) == 4
