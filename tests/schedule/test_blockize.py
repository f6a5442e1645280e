"""blockize: a loop becomes a block; its meaning, its text, and each refusal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.loop.scalar import Lt, index, lit
from plica.ir.loop.statement import Branch, For, Kernel, Store, block, block as make_block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import (
    ScheduleRefused,
    block as find,
    blockize,
    do,
    loops,
    reorder,
    split,
    trace_of,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.conftest import Golden
from tests.schedule.kernel import matmul, same_function


@do
def tiled(a: int, b: int, c: int, at: int = 3) -> Body:
    found = yield find("C")
    i, j, k = yield loops(found)
    i0, i1 = yield split(i, (None, a))
    j0, j1 = yield split(j, (None, b))
    k0, k1 = yield split(k, (None, c))
    order = (i0, j0, k0, i1, j1, k1)
    yield reorder(*order)
    yield blockize(order[at])


def after(schedule: object, kernel: Kernel) -> Kernel:
    return scheduled(trace_of(schedule, kernel), kernel)  # type: ignore[arg-type]  # a do-block


def refused(schedule: object, kernel: Kernel) -> str:
    with pytest.raises(ScheduleRefused) as caught:
        trace_of(schedule, kernel)  # type: ignore[arg-type]  # a do-block
    return caught.value.problem.precondition


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(tiled(4, 2, 2), matmul(8, 6, 4))), "blockize")


@settings(max_examples=12)
@given(st.tuples(*[st.integers(1, 3)] * 3), st.integers(0, 5))
def test_it_keeps_meaning(factors: tuple[int, int, int], at: int) -> None:
    kernel = matmul(5, dim_var("n"), dim_var("p"))
    assert same_function(kernel, after(tiled(*factors, at), kernel), n=4, p=3)


def rows(body: object = None) -> Kernel:
    """Two blocks in a loop."""
    x, y, z = (buffer(name, (4, 3), f32) for name in "xyz")
    i, j, k, v, w, a, b = (axis(name) for name in ("i", "j", "k", "v", "w", "a", "b"))
    first = block("y", (v, w), (4, 3), "ss", (i, j), Store(y, (v, w), x[v, w] + 1))
    then = block("z", (a, b), (4, 3), "ss", (i, k), Store(z, (a, b), y[a, b] + y[a, 2 - b]))
    nests = seq(For(j, index(3), "serial", first), For(k, index(3), "serial", then))
    return Kernel((), (x, y, z), 1, For(i, index(4), "serial", nests))


def test_several_blocks_become_one(golden: Golden) -> None:
    @do
    def whole() -> Body:
        found = yield find("y")
        i, _ = yield loops(found)
        _, inner = yield split(i, (2, 2))
        yield blockize(inner)

    new = after(whole, rows())
    assert same_function(rows(), new)
    golden(show_kernel(new), "blockize_several")


def strided(bind: object, extent: int, kinds: str = "s") -> Kernel:
    x, y, i, j, v = buffer("x", (9,), f32), buffer("y", (9,), f32), axis("i"), axis("j"), axis("v")
    value = bind(i, j)  # type: ignore[operator]
    init = Store(y, (index(0),), lit(0, f32)) if kinds == "r" else None
    target = (index(0),) if kinds == "r" else (v,)
    body = Store(y, target, y[target] + x[v]) if kinds == "r" else Store(y, target, x[v])
    inside = make_block("C", (v,), (extent,), kinds, (value,), body, init)
    return Kernel((), (x, y), 1, For(i, index(3), "serial", For(j, index(3), "serial", inside)))


@do
def inner_loop() -> Body:
    found = yield find("C")
    _, j = yield loops(found)
    yield blockize(j)


def test_refusals() -> None:
    assert refused(inner_loop, strided(lambda i, j: i + j, 5)) == "division"
    assert refused(inner_loop, strided(lambda i, j: i + j, 5, "r")) == "injective"
    assert refused(inner_loop, strided(lambda i, j: i * 3 + j + 1, 10, "r")) == "begins"


def test_an_empty_loop_divides_nothing() -> None:
    x, y = buffer("x", (9,), f32), buffer("y", (9,), f32)
    i, j, v = axis("i"), axis("j"), axis("v")
    inside = make_block("C", (v,), (9,), "s", (i * 3 + j,), Store(y, (v,), x[v]))
    nest = For(i, index(3), "serial", For(j, index(0), "serial", inside))
    assert refused(inner_loop, Kernel((), (x, y), 1, nest)) == "division"


def test_a_branch_around() -> None:
    kernel = strided(lambda i, j: i * 3 + j, 9)
    loop = kernel.body
    assert isinstance(loop, For)
    body = For(loop.var, loop.extent, "serial", Branch(Lt(loop.var, index(2)), loop.body, seq()))
    assert refused(inner_loop, Kernel((), kernel.params, 1, body)) == "rectangular"


def test_a_predicate_that_follows_from_nothing() -> None:
    x, y = buffer("x", (9,), f32), buffer("y", (9,), f32)
    i, j, k, v = axis("i"), axis("j"), axis("k"), axis("v")
    inside = make_block(
        "C", (v,), (9,), "s", (i * 3 + j,), Store(y, (v,), x[v]), predicate=Lt(j, index(1) + k)
    )
    nest = For(
        i, index(3), "serial", For(k, index(2), "serial", For(j, index(3), "serial", inside))
    )

    @do
    def innermost() -> Body:
        found = yield find("C")
        *_, last = yield loops(found)
        yield blockize(last)

    assert refused(innermost, Kernel((), (x, y), 1, nest)) == "predicate"
