"""sample_compute_location and reader_loop: legal places, all of them, and no other."""

from __future__ import annotations

import pytest

from plica.ir.type.dim import dim_var
from plica.schedule import (
    block,
    compute_at,
    do,
    loops,
    reader_loop,
    replay,
    sample_compute_location,
    split,
    trace_of,
)
from plica.schedule.do import Body
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import kernel_of
from tests.schedule.hostile import refusal
from tests.schedule.kernel import matmul, product_and_relu, same_function, stencil


@do
def somewhere() -> Body:
    b, c = (yield block("B")), (yield block("C"))
    (j,) = yield loops(c)
    yield split(j, (None, 2, 2))
    n = yield sample_compute_location(b)
    loop = yield reader_loop(b, n)
    yield compute_at(b, loop)


def test_every_legal_place_is_drawn_and_right() -> None:
    kernel = stencil(dim_var("size"))
    traces = {trace_of(somewhere, kernel, seed=seed) for seed in range(8)}
    assert {each.decisions()[4] for each in traces} == {(0,), (1,), (2,)}
    for trace in traces:
        after = kernel_of(replay(trace, kernel))[2]
        assert same_function(kernel, after, size=7)


def test_a_place_that_is_illegal() -> None:
    """A1 may be computed where its readers run, but C is not done inside its reduce loop."""

    @do
    def schedule() -> Body:
        yield sample_compute_location((yield block("A1")))

    trace = trace_of(schedule, product_and_relu())
    replay(trace.with_decision(1, (2,)), product_and_relu())
    with pytest.raises(ScheduleRefused, match="support"):
        replay(trace.with_decision(1, (3,)), product_and_relu())


def test_refusals() -> None:
    def nobody_reads() -> Body:
        yield sample_compute_location((yield block("C")))

    def no_such_loop() -> Body:
        yield reader_loop((yield block("A1")), 3)

    def nobody_reads_either() -> Body:
        yield reader_loop((yield block("C")), 0)

    def there_already() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        (j,) = yield loops(c)
        yield compute_at(b, j)
        yield sample_compute_location(b)

    assert refusal(matmul(), nobody_reads) == "has-consumers"
    assert refusal(matmul(), nobody_reads_either) == "has-consumers"
    assert refusal(product_and_relu(), no_such_loop) == "loop-number"
    assert refusal(stencil(), there_already) == "places"
