"""pad_fold and peel_init: reductions over padded extents, and without their identity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import BitXor, Max, Scalar, lit
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import For, Kernel, Store, block as block_of, seq
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.dtype import f32, i32
from plica.schedule import (
    annotate,
    block,
    compute_at,
    do,
    fuse,
    loops,
    pad_fold,
    peel_init,
    rfactor,
    split,
    vectorize,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul, product_and_relu


@given(nests(), st.integers(1, 5), st.booleans(), st.data())
def test_what_is_accepted_keeps_its_meaning(
    kernel: Kernel, multiple: int, peels: bool, data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        c = yield block("y0")
        loop = data.draw(st.sampled_from((yield loops(c))))
        yield peel_init(c, loop) if peels else pad_fold(loop, multiple)

    keeps(kernel, schedule)


@given(products(), st.integers(1, 5), st.booleans(), st.data())
def test_after_other_steps(
    product: tuple[Kernel, dict[str, int]], multiple: int, peels: bool, data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        c, around = yield prepared(data)
        loop = data.draw(st.sampled_from(around))
        yield peel_init(c, loop) if peels else pad_fold(loop, multiple)

    keeps(product[0], schedule, **product[1])


def test_printed(golden: Golden) -> None:
    def padded() -> Body:
        _, _, k = yield loops((yield block("C")))
        yield pad_fold(k, 4)

    def peeled() -> Body:
        c = yield block("C")
        _, _, k = yield loops(c)
        first = yield peel_init(c, k)
        yield loops(first)

    golden(show_kernel(after(matmul(3, 2, dim_var("depth")), padded, depth=6)), "pad_fold")
    golden(show_kernel(after(matmul(3, 2, 6), peeled)), "peel_init")


def test_a_padded_sum_in_lanes_has_no_guarded_store() -> None:
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        yield pad_fold(k, 8)
        _, k1 = yield split(k, (None, 8))
        part = yield rfactor(k1, 0)
        *_, lane = yield loops(part)
        yield vectorize(lane)

    shown = show_kernel(after(matmul(3, 2, 13), schedule))
    assert "where" not in shown  # the block's guard; the term is chosen instead


@pytest.mark.parametrize("length", [1, 7])
def test_signs_of_zero(length: int) -> None:
    """Padding keeps every bit; a fold that begins with its first term keeps the sign of -0.0."""
    x = buffer("x", (2, length), f32)
    rows = stage("y", (2,), lambda i: reduce("sum", (length,), lambda k: x[i, k]))
    kernel = kernel_of(stages((x,), (rows,)))

    def padded() -> Body:
        (*_, k) = yield loops((yield block("y")))
        yield pad_fold(k, 4)

    def peeled() -> Body:
        c = yield block("y")
        (*_, k) = yield loops(c)
        yield peel_init(c, k)

    data = np.full((2, length), -0.0, np.float32)
    (plain,) = run_kernel(kernel, (data,))
    (wide,) = run_kernel(after(kernel, padded), (data,))
    (short,) = run_kernel(after(kernel, peeled), (data,))
    assert np.signbit(plain).tolist() == np.signbit(wide).tolist() == [False] * 2
    assert np.signbit(short).all()


def fold(start: int, make: Callable[[Scalar, Scalar], Scalar]) -> Kernel:
    """A fold of 4 elements from a number."""
    x, y = buffer("x", (4,), i32), buffer("y", (1,), i32)
    i, k, v, w = (axis(name) for name in "ikvw")
    body = Store(y, (v,), make(y[v], x[w]))
    inside = block_of("y", (v, w), (1, 4), "sr", (i, k), body, Store(y, (v,), lit(start, i32)))
    return Kernel((), (x, y), 1, For(i, dim(1), "serial", For(k, dim(4), "serial", inside)))


@pytest.mark.parametrize("peels", [False, True])
@pytest.mark.parametrize(
    ("word", "start", "make"),
    [
        ("identity", 1, lambda old, new: old + new),
        ("identity", 0, Max),
        ("reducer", 0, BitXor),
        ("accepted", 0, lambda old, new: old + new),
        ("accepted", -(2**31), Max),
    ],
)
def test_what_a_fold_begins_with(
    peels: bool, word: str, start: int, make: Callable[[Scalar, Scalar], Scalar]
) -> None:
    def schedule() -> Body:
        c = yield block("y")
        _, k = yield loops(c)
        yield peel_init(c, k) if peels else pad_fold(k, 3)

    assert refusal(fold(start, make), schedule) == word


@pytest.mark.parametrize(
    "word", ["plain-loop", "one-block", "reduce-kinds", "reduce-loop", "multiple"]
)
def test_refusals_of_padding(word: str) -> None:
    def schedule() -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (_, j, k), (i2, j2) = (yield loops(c)), (yield loops(d))
        if word == "plain-loop":
            yield annotate(k, "pragma", "x")
        if word == "one-block":
            yield compute_at(c, i2)
        if word == "reduce-loop":
            k = yield fuse(j, k)
        loop = {"one-block": i2, "reduce-kinds": j2}.get(word, k)
        yield pad_fold(loop, 0 if word == "multiple" else 4)

    assert refusal(product_and_relu(), schedule) == word


@pytest.mark.parametrize("word", ["plain-loop", "around", "reduce-loop"])
def test_refusals_of_peeling(word: str) -> None:
    def schedule() -> Body:
        c, d = (yield block("C")), (yield block("D"))
        (*_, k), (i2, _) = (yield loops(c)), (yield loops(d))
        if word == "plain-loop":
            yield annotate(k, "pragma", "x")
        if word == "reduce-loop":
            k, _ = yield split(k, (None, 2))
        yield peel_init(c, i2 if word == "around" else k)

    assert refusal(product_and_relu(), schedule) == word


def test_a_fold_over_two_loops_keeps_its_init() -> None:
    x = buffer("x", (2, 3, 4), f32)
    total = stage("y", (2,), lambda i: reduce("sum", (3, 4), lambda k, m: x[i, k, m]))

    def schedule() -> Body:
        c = yield block("y")
        _, k, _ = yield loops(c)
        yield peel_init(c, k)

    assert refusal(kernel_of(stages((x,), (total,))), schedule) == "sole-reduction"


def test_a_fold_that_may_be_empty_keeps_its_init() -> None:
    def schedule() -> Body:
        c = yield block("C")
        _, _, k = yield loops(c)
        yield peel_init(c, k)

    assert refusal(matmul(3, 2, dim_var("depth")), schedule) == "extent"


def test_terms_that_are_made_inside_of_the_loop() -> None:
    x, t, y = buffer("x", (4,), i32), buffer("t", (4,), i32), buffer("y", (1,), i32)
    k, v, w, u = (axis(name) for name in "kvwu")
    made = block_of("t", (u,), (4,), "s", (k,), Store(t, (u,), x[u] * 2))
    total = block_of(
        "y", (v, w), (1, 4), "sr", (dim(0), k), Store(y, (v,), y[v] + t[w]),
        Store(y, (v,), lit(0, i32)),
    )  # fmt: skip
    kernel = Kernel((), (x, t, y), 1, For(k, dim(4), "serial", seq(made, total)))

    def schedule() -> Body:
        c = yield block("y")
        (k,) = yield loops(c)
        yield peel_init(c, k)

    assert refusal(kernel, schedule) == "one-block"


def test_a_reduce_variable_that_is_constant_is_one_too_many() -> None:
    x, y = buffer("x", (4,), i32), buffer("y", (1,), i32)
    k, v, w, u = (axis(name) for name in "kvwu")
    total = block_of(
        "y", (v, w, u), (1, 4, 1), "srr", (dim(0), k, dim(0)), Store(y, (v,), y[v] + x[w + u]),
        Store(y, (v,), lit(0, i32)),
    )  # fmt: skip

    def schedule() -> Body:
        c = yield block("y")
        (k,) = yield loops(c)
        yield peel_init(c, k)

    assert refusal(Kernel((), (x, y), 1, For(k, dim(4), "serial", total)), schedule) == (
        "sole-reduction"
    )
