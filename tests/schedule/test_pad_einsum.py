"""pad_einsum: sums of products over larger extents."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.loop.scalar import Scalar, index, lit
from plica.ir.loop.statement import For, Kernel, Store, block as make_block
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import (
    ScheduleRefused,
    block as find,
    do,
    loops,
    pad_einsum,
    split,
    trace_of,
    unroll,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.conftest import Golden
from tests.schedule.kernel import matmul, same_function


@do
def padded(*numbers: int) -> Body:
    found = yield find("C")
    yield pad_einsum(found, numbers)


def after(schedule: object, kernel: Kernel) -> Kernel:
    return scheduled(trace_of(schedule, kernel), kernel)  # type: ignore[arg-type]  # a do-block


def refused(schedule: object, kernel: Kernel) -> str:
    with pytest.raises(ScheduleRefused) as caught:
        trace_of(schedule, kernel)  # type: ignore[arg-type]  # a do-block
    return caught.value.problem.precondition


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(padded(4, 1, 4), matmul(6, 5, 3))), "pad_einsum")


@settings(max_examples=10)
@given(st.tuples(*[st.integers(1, 4)] * 3))
def test_it_keeps_meaning(numbers: tuple[int, int, int]) -> None:
    kernel = matmul(5, dim_var("n"), 3)
    assert same_function(kernel, after(padded(*numbers), kernel), n=3)


def test_what_fits_is_left_alone() -> None:
    kernel = matmul(8, 4, 2)
    assert after(padded(4, 4, 2), kernel) is kernel


def sums(value: object, start: float = 0.0) -> Kernel:
    x, y, c = buffer("x", (5, 3), f32), buffer("y", (5,), f32), buffer("c", (5,), f32)
    i, k, v, r = axis("i"), axis("k"), axis("v"), axis("r")
    term: Scalar = value(x, y, v, r)  # type: ignore[operator]
    block = make_block(
        "C", (v, r), (5, 3), "sr", (i, k), Store(c, (v,), c[v] + term),
        Store(c, (v,), lit(start, f32)),
    )  # fmt: skip
    nest = For(i, index(5), "serial", For(k, index(3), "serial", block))
    return Kernel((), (x, y, c), 2, nest)


def test_refusals() -> None:
    product = sums(lambda x, y, v, r: x[v, r] * y[v])
    assert refused(padded(2), product) == "padding"
    assert refused(padded(2, 0), product) == "padding"
    assert refused(padded(1, 2), product) == "einsum"  # y does not grow with the sum
    assert refused(padded(2, 1), sums(lambda x, y, v, r: x[v, r] + y[v])) == "einsum"
    assert refused(padded(2, 1), sums(lambda x, y, v, r: x[v, r], 1.0)) == "einsum"
    assert same_function(product, after(padded(2, 1), product))


def test_loops_that_are_not_the_variables() -> None:
    @do
    def tiles() -> Body:
        found = yield find("C")
        i, _, _ = yield loops(found)
        yield split(i, (2, 3))
        yield pad_einsum(found, (4, 4, 4))

    @do
    def said() -> Body:
        found = yield find("C")
        i, _, _ = yield loops(found)
        yield unroll(i)
        yield pad_einsum(found, (4, 4, 4))

    assert refused(tiles, matmul()) == "trivial"
    assert refused(said, matmul()) == "plain-loop"


def test_no_reduction() -> None:
    x, y, i, v = buffer("x", (5,), f32), buffer("y", (5,), f32), axis("i"), axis("v")
    copy = make_block("C", (v,), (5,), "s", (i,), Store(y, (v,), x[v]))
    kernel = Kernel((), (x, y), 1, For(i, index(5), "serial", copy))
    assert refused(padded(2), kernel) == "reduce-kinds"
