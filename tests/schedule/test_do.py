"""Do-blocks: what is recorded, what they receive, and how they go on after a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from plica.analysis.site import map_of
from plica.core.binding import rename, substitute
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.loop.statement import NOTHING, For, Kernel
from plica.runtime.error import ArgumentError, Place, PlicaError
from plica.schedule import (
    Handle,
    ScheduleRefused,
    Step,
    Trace,
    block,
    diff,
    do,
    fuse,
    loops,
    record,
    replay,
    sample_categorical,
    sample_tile,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.schedule.kernel import matmul, same_function


@do
def tiled(factor: int = 3) -> Body:
    c = yield block("C")
    i, j, _ = yield loops(c)
    i0, i1 = yield split(i, sample_tile(2, max_inner=4))
    _, j1 = yield split(j, (None, factor))
    yield unroll(j1)
    return i0, i1


def names(kernel: Kernel) -> list[str]:
    return [str(var.name) for var in map_of(kernel).loops]


def test_a_trace_replays_to_what_was_recorded() -> None:
    recorded = record(tiled(2), matmul())
    assert replay(recorded.trace, matmul()) is recorded.module
    assert recorded.trace is trace_of(tiled(2), matmul())
    assert [step.instruction.kind for step in recorded.trace.steps] == [
        "block", "loops", "sample_perfect_tile", "split", "split", "unroll",
    ]  # fmt: skip
    assert recorded.result == (Handle(3, 0, "loop"), Handle(3, 1, "loop"))


def test_the_kernel_means_the_same() -> None:
    after = scheduled(trace_of(tiled, matmul()), matmul())
    assert same_function(matmul(), after)


def test_a_wrong_argument_is_placed_at_its_line() -> None:
    def schedule() -> Body:
        i, *_ = yield loops((yield block("C")))
        yield split(i, 16)  # type: ignore[arg-type]

    with pytest.raises(ArgumentError, match="a tuple of factors") as caught:
        trace_of(do(schedule), matmul())
    (told,) = caught.value.diagnostics
    assert told.place == Place(__file__, schedule.__code__.co_firstlineno + 2)


def test_seeds_and_decisions() -> None:
    drawn = {trace_of(tiled, matmul(24), seed=seed).steps[2].decision for seed in range(40)}
    assert len(drawn) > 2
    assert all(a * b == 24 and b <= 4 for a, b in (each for each in drawn if each))
    fixed = trace_of(tiled, matmul(24), decisions={2: (12, 2)})
    assert fixed.decisions() == {2: (12, 2)}
    assert fixed.with_decision(2, (6, 4)).decisions() == {2: (6, 4)}
    with pytest.raises(ScheduleRefused, match="support"):
        replay(fixed.with_decision(2, (5, 4)), matmul(24))
    with pytest.raises(ScheduleRefused, match="2 factors of 24"):
        fixed.with_decision(2, (5, 4), matmul(24))
    assert fixed.with_decision(2, (6, 4), matmul(24)) is fixed.with_decision(2, (6, 4))
    with pytest.raises(ValueError, match="decides nothing"):
        fixed.with_decision(0, (1,))


def test_a_do_block_is_an_instruction() -> None:
    @do
    def outer() -> Body:
        first, second = yield tiled(2)
        one = yield fuse(first, second)
        return one

    recorded = record(outer, matmul())
    assert recorded.trace.prefix(6) is trace_of(tiled(2), matmul())
    assert isinstance(recorded.result, Handle)


def test_a_refusal_can_be_caught_and_leaves_all_as_it_was() -> None:
    @do
    def hopeful() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        try:
            yield fuse(j, i)
        except ScheduleRefused as refused:
            caught.append(refused.problem.precondition)
        yield fuse(i, j)

    caught: list[str] = []
    trace = trace_of(hopeful, matmul())
    assert caught == ["chain"]
    assert [step.instruction.kind for step in trace.steps] == ["block", "loops", "fuse"]


def test_a_refusal_passes_through_an_inner_block() -> None:
    @do
    def outer() -> Body:
        c = yield block("C")
        try:
            yield inner(c)
        except ScheduleRefused:
            return "caught"
        return "not caught"

    @do
    def inner(c: Handle) -> Body:
        i, _, _ = yield loops(c)
        yield split(i, (0, 3))

    assert record(outer, matmul()).result == "caught"


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    @do
    def wrong() -> Body:
        yield block("c")

    with pytest.raises(ScheduleRefused) as refused:
        trace_of(wrong, matmul())
    assert "one of C" in str(refused.value)
    assert refused.value.step == 0


def test_a_loop_that_was_split_is_there_no_longer() -> None:
    @do
    def twice() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield split(i, (2, 3))
        yield split(i, (3, 2))

    with pytest.raises(ScheduleRefused, match="alive"):
        trace_of(twice, matmul())


def test_a_handle_of_another_trace() -> None:
    trace = Trace((Step(loops(Handle(7, 0, "block"))),))
    with pytest.raises(ScheduleRefused, match="known-handle"):
        replay(trace, matmul())


def test_names_do_not_matter() -> None:
    kernel = matmul()
    trace = trace_of(tiled, kernel)
    loop = kernel.body
    assert isinstance(loop, For)
    var = rename(loop.var, Name("row"))
    body: Any = substitute(loop.body, {loop.var: var})
    other = Kernel((), kernel.params, 2, For(var, loop.extent, "serial", body))
    assert digest(scheduled(trace, other)) == digest(scheduled(trace, kernel))


def test_sampling_one_of_several() -> None:
    @do
    def chosen() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        n = yield sample_categorical((2, 3, 6), (0.0, 1.0, 0.0))
        yield split(i, (None, n))

    trace = trace_of(chosen, matmul())
    assert trace.decisions() == {2: (3,)}
    with pytest.raises(ScheduleRefused, match="support"):
        replay(trace.with_decision(2, (4,)), matmul())


def test_a_scope_that_nobody_declared_is_not_scheduled() -> None:
    kernel = matmul()
    misspelt = Kernel(
        (), (evolve(kernel.params[0], scope="sharde"), *kernel.params[1:]), 2, NOTHING
    )
    with pytest.raises(PlicaError, match="Did you mean 'shared'"):
        trace_of(tiled, misspelt)


# --- where a refusal was asked for ---------------------------------------------------------------


def lines_of(name: str) -> int:
    """The line of a mark in this file."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {name}"))


def refused(schedule: Any) -> ScheduleRefused:
    with pytest.raises(ScheduleRefused) as caught:
        trace_of(do(schedule), matmul())
    return caught.value


def test_a_refusal_names_the_line_of_its_yield() -> None:
    def schedule() -> Any:
        i, *_ = yield loops("C")
        yield split(i, (None, 2))
        yield vectorize(i)  # asked here

    found = refused(schedule)
    place = found.diagnostics[0].place
    assert place is not None
    assert (place.file, place.line) == (__file__, lines_of("asked here"))
    assert place.node == "step 3, the loop i"


def test_a_loop_that_is_gone_was_taken_by_a_step() -> None:
    def schedule() -> Any:
        i, *_ = yield loops("C")
        yield split(i, (None, 2))
        yield vectorize(i)

    assert refused(schedule).problem.found == "step 2 (split) took it; it gave i_1, i_2"


def test_a_refusal_inside_another_generator_names_that() -> None:
    def inner() -> Any:
        yield loops("D")  # inner asks

    def schedule() -> Any:
        yield from inner()

    place = refused(schedule).diagnostics[0].place
    assert place is not None
    assert place.line == lines_of("inner asks")


def test_names_that_are_too_few_are_refused_as_steps_are() -> None:
    def schedule() -> Any:
        _i, _j = yield loops("C")  # two names

    found = refused(schedule)
    assert found.problem.precondition == "unpacked"
    assert found.problem.expected == "3 names for what it gave"
    assert found.line is not None
    assert found.line.line == lines_of("two names")


def test_what_a_block_raises_itself_is_its_own() -> None:
    def schedule() -> Any:
        yield loops("C")
        int("x")

    with pytest.raises(ValueError, match="invalid literal"):
        trace_of(do(schedule), matmul())


def test_loops_of_a_name() -> None:
    def by_name() -> Any:
        i, *_ = yield loops("C")
        yield unroll(i)

    def by_handle() -> Any:
        i, *_ = yield loops((yield block("C")))
        yield unroll(i)

    assert trace_of(do(by_name), matmul()) is trace_of(do(by_handle), matmul())


def test_texts_are_those_of_the_shell() -> None:
    def one() -> Any:
        i, *_ = yield loops("C")
        yield split(i, (None, 2))

    def two() -> Any:
        i, *_ = yield loops("C")
        yield split(i, (None, 4))

    a, b = trace_of(do(one), matmul()), trace_of(do(two), matmul())
    assert str(a) == a.to_python()
    assert Trace.from_python(str(a)) is a
    assert str(diff(a, b)) == "hunk 0\n~ 2 split: factors (None, 2) -> (None, 4)"
    assert str(diff(a, a)) == "the traces are the same"
    assert a._repr_html_().startswith("<pre>from plica.schedule import do")
    assert "-&gt;" in diff(a, b)._repr_html_()
