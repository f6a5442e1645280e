"""decompose_reduction: the init apart from the update."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.scalar import Scalar, index, lit
from plica.ir.loop.statement import For, Kernel, Stmt, Store, block as block_of, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.dtype import i32
from plica.schedule import (
    bind,
    block,
    decompose_reduction,
    do,
    fuse,
    loops,
    merge_loops,
    reorder,
    split,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul, product_and_relu


@given(nests(), st.data())
def test_what_is_accepted_keeps_its_meaning(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        c = yield block("y0")
        yield decompose_reduction(c, data.draw(st.sampled_from((yield loops(c)))))

    keeps(kernel, schedule)


@given(products(), st.data())
def test_after_other_steps(product: tuple[Kernel, dict[str, int]], data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        c, around = yield prepared(data, 4)
        yield decompose_reduction(c, data.draw(st.sampled_from(around)))

    keeps(product[0], schedule, **product[1])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_before_each_loop(at: int, golden: Golden) -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, j, k = yield loops(c)
        i0, i1 = yield split(i, (None, 4))
        k0, k1 = yield split(k, (3, None))
        yield reorder(i0, j, k1, k0, i1)
        start = yield decompose_reduction(c, (i0, j, k1)[at])
        yield loops(start)

    kernel = after(matmul(dim_var("rows"), 5, dim_var("depth")), schedule, rows=6, depth=5)
    golden(show_kernel(kernel), f"decompose_reduction_{at}")


def backwards(binding: int) -> Kernel:
    """A sum whose init runs last, or where a loop feeds both kinds of variables."""
    x, y = buffer("x", (4,), i32), buffer("y", (1,), i32)
    k, v, f, w = (axis(each) for each in "kvfw")
    place: Scalar = index(3) - k if binding else k
    body = Store(y, (index(0),), y[0] + x[v])
    fill = block_of("fill", (w,), (1,), "s", (f,), Store(y, (w,), lit(0, i32)))
    init = Store(y, (index(0),), lit(7, i32))
    total = block_of("y", (v,), (4,), "r", (place,), body, init)
    nests: list[Stmt] = [For(f, dim(1), "serial", fill), For(k, dim(4), "serial", total)]
    return Kernel((), (x, y), 1, seq(*nests))


def test_an_init_that_runs_last() -> None:
    def schedule() -> Body:
        c = yield block("y")
        (k,) = yield loops(c)
        yield decompose_reduction(c, k)

    assert refusal(backwards(0), schedule) == "accepted"
    assert refusal(backwards(1), schedule) == "begins"


@pytest.mark.parametrize(
    "word", ["around", "reduce-kinds", "no-reduce-outside", "no-reduce-thread", "begins", "starts"]
)
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (i, j, k), (i2, _) = (yield loops(c)), (yield loops(d))
        if word == "around":
            yield decompose_reduction(c, i2)
        if word == "reduce-kinds":
            yield decompose_reduction(d, i2)
        if word == "no-reduce-outside":
            yield reorder(k, i, j)
        if word == "no-reduce-thread":
            yield bind(k, "threadIdx.x")
        if word == "begins":
            j = yield fuse(j, k)
        if word == "starts":
            yield decompose_reduction(c, j)
        yield decompose_reduction(c, i if word == "no-reduce-outside" else j)

    assert refusal(product_and_relu(), schedule) == word


def test_a_reader_in_the_same_loop() -> None:
    """D reads a row of C after it is done: the init may go before the row, or all rows."""

    def schedule(at: int) -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (i, j, _), (i2, _) = (yield loops(c)), (yield loops(d))
        yield merge_loops(i, i2)
        yield decompose_reduction(c, (i, j)[at])

    for at in (0, 1):
        after(product_and_relu(), lambda at=at: schedule(at))  # type: ignore[misc]  # now


def test_an_init_that_reads_what_the_loop_writes() -> None:
    x, b, y = buffer("x", (3, 4), i32), buffer("b", (3,), i32), buffer("y", (3,), i32)
    i, k, v, w, u = (axis(each) for each in "ikvwu")
    before = block_of("b", (u,), (3,), "s", (i,), Store(b, (u,), x[u, 0]))
    update, init = Store(y, (v,), y[v] + x[v, w]), Store(y, (v,), b[v])
    total = block_of("y", (v, w), (3, 4), "sr", (i, k), update, init)
    inside = seq(before, For(k, dim(4), "serial", total))
    kernel = Kernel((), (x, b, y), 1, For(i, dim(3), "serial", inside))

    def schedule(at: int) -> Body:
        c = yield block("y")
        yield decompose_reduction(c, (yield loops(c))[at])

    assert refusal(kernel, lambda: schedule(0)) == "alone"
    after(kernel, lambda: schedule(1))
