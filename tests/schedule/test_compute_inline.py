"""compute_inline: a value is computed where it is read."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.loop.scalar import Reduce, index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import block as block_named, compute_at, compute_inline, do, loops, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, product_and_relu, stencil
from tests.schedule.stages import (
    Program,
    padded,
    pipelines,
    prefix_sums,
    roughened,
    stencils,
    strange,
    two_writers,
)


def asked(label: str) -> Body:
    yield compute_inline((yield block_named(label)))


@given(st.one_of(pipelines(), stencils()), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    kernel, sizes = program
    label = "A1" if "m" in sizes else "B"

    @do
    def schedule() -> Body:
        yield roughened(data, label, "C")
        yield compute_inline((yield block_named(label)))

    assert keeps(kernel, schedule, **sizes)


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(stencil(dim_var("n")), lambda: asked("B"), n=5)), "compute_inline")


def test_a_guard_stays_in_front() -> None:
    after(padded(), lambda: asked("B"))


def test_inside_a_loop_of_its_reader() -> None:
    def schedule() -> Body:
        (j,) = yield loops((yield block_named("C")))
        j0, _ = yield split(j, (None, 4))
        b = yield block_named("B")
        yield compute_at(b, j0)
        yield compute_inline(b)

    after(stencil(10), schedule)


def inner_sums(first: str, second: str) -> Kernel:
    """Two blocks that each sum over an axis of their own, of these names."""
    a, b, c = buffer("A", (3, 4), f32), buffer("B", (3,), f32), buffer("C", (2,), f32)
    i, j, v, w, p, q = axis("i"), axis("j"), axis("v"), axis("w"), axis(first), axis(second)
    sums = Store(b, (v,), Reduce("sum", (p,), (index(4),), a[v, p]))
    again = Store(c, (w,), Reduce("sum", (q,), (index(2),), b[q + w]))
    one = For(i, index(3), "serial", block("B", (v,), (3,), "s", (i,), sums))
    two = For(j, index(2), "serial", block("C", (w,), (2,), "s", (j,), again))
    return Kernel((), (a, c), 1, Alloc(b, seq(one, two)))


def test_axes_of_one_name() -> None:
    after(inner_sums("p", "q"), lambda: asked("B"))
    after(inner_sums("p", "p"), lambda: asked("B"))
    after(inner_sums("p", "v"), lambda: asked("B"))


def test_refusals() -> None:
    assert refusal(matmul(), lambda: asked("C")) == "spatial-only"
    assert refusal(product_and_relu(), lambda: asked("D")) == "intermediate"
    assert refusal(two_writers(), lambda: asked("B")) == "sole-writer"
    assert refusal(strange(), lambda: asked("C")) == "stage-pipeline"
    assert refusal(prefix_sums(), lambda: asked("B")) == "finished"
    assert refusal(unread(), lambda: asked("B")) == "has-consumers"
    assert refusal(halved(), lambda: asked("B")) == "plain-store"
    assert refusal(changed(), lambda: asked("B")) == "stage-pipeline"


def unread() -> Kernel:
    kernel = padded()
    b = kernel.body
    assert isinstance(b, Alloc)
    assert not isinstance(b.body, For)
    return Kernel((), kernel.params, 1, Alloc(b.buffer, b.body.stmts[0]))  # type: ignore[union-attr]


def halved() -> Kernel:
    """B is stored at twice the variable."""
    a, b, c = buffer("A", (4,), f32), buffer("B", (8,), f32), buffer("C", (4,), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    one = block("B", (v,), (4,), "s", (i,), Store(b, (v * 2,), a[v]))
    two = block("C", (w,), (4,), "s", (j,), Store(c, (w,), b[w * 2]))
    nests = seq(For(i, index(4), "serial", one), For(j, index(4), "serial", two))
    return Kernel((), (a, c), 1, Alloc(b, nests))


def changed() -> Kernel:
    """What B was computed from is written again before B is read."""
    a, x, b, c = (buffer(name, (4,), f32) for name in "AXBC")
    stmts = []
    for at, (label, to, of) in enumerate((("B", b, x), ("X", x, a), ("C", c, b))):
        i, v = axis("i", at), axis("v", at)
        inside = block(label, (v,), (4,), "s", (i,), Store(to, (v,), of[v] + at))
        stmts.append(For(i, index(4), "serial", inside))
    return Kernel((), (a, x, c), 2, Alloc(b, seq(*stmts)))
