"""reverse_compute_at: a consumer in a loop of its producers, on what they make there."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.loop.scalar import index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block as block_of, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import block, cache_write, compute_at, do, loops, reverse_compute_at, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import chain, product_and_relu, stencil
from tests.schedule.stages import (
    Program,
    padded,
    pipelines,
    prefix_sums,
    roughened,
    stencils,
    two_writers,
)


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "A1", "C", "D")
        c, d = (yield block("C")), (yield block("D"))
        if data.draw(st.booleans()):
            copy = yield cache_write(c, 0, "global")
            yield reverse_compute_at(copy, data.draw(st.sampled_from((yield loops(c)))))
        yield reverse_compute_at(d, data.draw(st.sampled_from((yield loops(c)))), -2)

    keeps(program[0], schedule, **program[1])


@given(stencils(), st.data())
def test_windows_that_are_not_ready_are_refused(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "B", "C")
        around = yield loops((yield block("B")))
        yield reverse_compute_at((yield block("C")), data.draw(st.sampled_from(around)))

    keeps(program[0], schedule, **program[1])


def tiled() -> Body:
    i, j, _ = yield loops((yield block("C")))
    yield split(i, (None, 4))
    yield reverse_compute_at((yield block("D")), j)


def test_text(golden: Golden) -> None:
    kernel = product_and_relu(dim_var("m"), 5, 4)
    golden(show_kernel(after(kernel, tiled, m=7)), "reverse_compute_at")


def test_every_legal_place_is_accepted() -> None:
    kernel = chain(10, lambda a, v: a[v] + 1, lambda a, v: a[v] * 2)

    def schedule() -> Body:
        (i,) = yield loops((yield block("B1")))
        _, i1 = yield split(i, (None, 3))
        yield reverse_compute_at((yield block("B2")), i1)

    after(kernel, schedule)


def asked(label: str, of: str, depth: int = 0, index: int = -1) -> Body:
    around = yield loops((yield block(of)))
    yield reverse_compute_at((yield block(label)), around[depth], index)


def test_refusals() -> None:
    assert refusal(product_and_relu(), lambda: asked("D", "C", 2)) == "finished"
    assert refusal(product_and_relu(), lambda: asked("C", "A1", 1)) == "whole-reduction"
    assert refusal(product_and_relu(), lambda: asked("D", "A1")) == "available"
    assert refusal(two_chains(), lambda: asked("C", "X")) == "producers-under"
    assert refusal(product_and_relu(), lambda: asked("D", "D")) == "loop-elsewhere"
    assert refusal(product_and_relu(), lambda: asked("D", "C", 0, 9)) == "index"
    assert refusal(stencil(), lambda: asked("C", "B")) == "one-place"
    assert refusal(padded(), lambda: asked("C", "B")) == "covered"
    assert refusal(two_writers(), lambda: asked("C", "B")) == "sole-writer"
    assert refusal(prefix_sums(), lambda: asked("C", "X")) == "finished"


def two_chains() -> Kernel:
    """A block X that C has nothing to do with."""
    a, x, b, c = (buffer(name, (4,), f32) for name in "AXBC")
    stmts = []
    for at, (label, to, of) in enumerate((("B", b, a), ("X", x, a), ("C", c, b))):
        i, v = axis("i", at), axis("v", at)
        inside = block_of(label, (v,), (4,), "s", (i,), Store(to, (v,), of[v] + at))
        stmts.append(For(i, index(4), "serial", inside))
    return Kernel((), (a, x, c), 1, Alloc(b, seq(*stmts)))


def test_an_input_that_is_made_later() -> None:
    def schedule() -> Body:
        a1, c, d = (yield block("A1")), (yield block("C")), (yield block("D"))
        yield compute_at(c, (yield loops(d))[0])
        yield reverse_compute_at(d, (yield loops(a1))[0])

    assert refusal(product_and_relu(), schedule) in ("producers-under", "available")
