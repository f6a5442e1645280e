"""decompose_padding: a constant is filled in, then what is inside is copied."""

from __future__ import annotations

import pytest

from plica.ir.loop.scalar import And, Le, Lt, Scalar, ScalarVar, Select, index, lit
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block as make_block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import DimLike, dim, dim_var
from plica.ir.type.dtype import f32
from plica.schedule import (
    ScheduleRefused,
    bind,
    block as find,
    decompose_padding,
    do,
    loops,
    split,
    trace_of,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.conftest import Golden
from tests.schedule.kernel import same_function


def padding(rows: DimLike, *, turned: bool = False, value: Scalar | None = None) -> Kernel:
    """Two rows of sevens around x."""
    size = dim(rows)
    x, y = buffer("x", (size, 3), f32), buffer("y", (size + 2, 3), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    inside, seven = And(Le(index(1), v), Lt(v, size + 1)), lit(7, f32)
    chosen: Scalar = Select(inside, x[v - 1, w], seven)
    if turned:
        chosen = Select(Lt(v, index(2)), seven, x[v - 2, w])
    body = Store(y, (v, w), chosen if value is None else value)
    block = make_block("P", (v, w), (size + 2, 3), "ss", (i, j), body)
    nest = For(i, size + 2, "serial", For(j, index(3), "serial", block))
    return Kernel((size,) if isinstance(size, ScalarVar) else (), (x, y), 1, nest)


@do
def decomposed(at: int = 0) -> Body:
    found = yield find("P")
    around = yield loops(found)
    yield decompose_padding(found, around[at])


def after(schedule: object, kernel: Kernel) -> Kernel:
    return scheduled(trace_of(schedule, kernel), kernel)  # type: ignore[arg-type]  # a do-block


def refused(schedule: object, kernel: Kernel) -> str:
    with pytest.raises(ScheduleRefused) as caught:
        trace_of(schedule, kernel)  # type: ignore[arg-type]  # a do-block
    return caught.value.problem.precondition


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(decomposed(1), padding(dim_var("n")))), "decompose_padding")


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
def test_it_keeps_meaning(at: int, turned: bool) -> None:
    kernel = padding(dim_var("n"), turned=turned)
    assert same_function(kernel, after(decomposed(at), kernel), n=4)


def test_after_a_split_that_does_not_divide() -> None:
    @do
    def halves() -> Body:
        found = yield find("P")
        i, _ = yield loops(found)
        _, inner = yield split(i, (None, 4))
        yield decompose_padding(found, inner)

    kernel = padding(dim_var("n"))
    assert same_function(kernel, after(halves, kernel), n=5)


def test_refusals() -> None:
    assert refused(decomposed(0), padding(4, value=lit(0, f32))) == "padding"

    @do
    def threads() -> Body:
        found = yield find("P")
        i, _ = yield loops(found)
        yield bind(i, "threadIdx.x")
        yield decompose_padding(found, i)

    assert refused(threads, padding(4)) == "no-thread"


def test_a_loop_elsewhere() -> None:
    one = padding(4)
    x, z, k, u = one.params[0], buffer("z", (4,), f32), axis("k"), axis("u")
    other = make_block("Z", (u,), (4,), "s", (k,), Store(z, (u,), x[u, 0]))

    body = seq(one.body, For(k, index(4), "serial", other))

    @do
    def elsewhere() -> Body:
        found = yield find("P")
        far = yield find("Z")
        (loop,) = yield loops(far)
        yield decompose_padding(found, loop)

    assert refused(elsewhere, Kernel((), (*one.params, z), 1, body)) == "around"


def test_an_instance_that_runs_twice() -> None:
    kernel = padding(4)
    twice = Kernel((), kernel.params, 1, For(axis("t"), index(2), "serial", kernel.body))
    assert refused(decomposed(1), twice) == "injective"


def test_instances_that_do_not_run() -> None:
    """A copy of which only a part is read: what is filled is what is stored."""
    x, y, z = buffer("x", (4, 3), f32), buffer("y", (6, 5), f32), buffer("z", (6, 2), f32)
    i, j, v, w, p, q = (axis(each) for each in ("i", "j", "v", "w", "p", "q"))
    element = Select(And(Le(index(1), v), Lt(v + w, index(5))), x[v - 1, w], lit(7, f32))
    pad = make_block("P", (v, w), (6, 5), "ss", (i, j), Store(y, (v, w), element))
    read = make_block("Z", (p, q), (6, 2), "ss", (i, j), Store(z, (p, q), y[p, q]))
    copy, use = (For(j, index(2), "serial", each) for each in (pad, read))
    nest = For(i, index(6), "serial", seq(copy, use))
    kernel = Kernel((), (x, z), 1, Alloc(y, nest))
    assert same_function(kernel, after(decomposed(1), kernel))
