"""reverse_compute_inline: what is done with a value is done where it is made."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.loop.scalar import Lt, Reduce, Select, index, lit
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dtype import f32
from plica.schedule import block as block_named, do, loops, reverse_compute_inline, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import chain, matmul, product_and_relu, stencil
from tests.schedule.stages import padded, prefix_sums, roughened, two_writers

BODIES = (lambda a, v: a[v] + 1, lambda a, v: a[v] * a[v], lambda a, v: a[v] - 2)


def asked(label: str) -> Body:
    yield reverse_compute_inline((yield block_named(label)))


@given(st.integers(1, 9), st.data())
def test_meaning(size: int, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "B1", "B2", "B3")
        yield reverse_compute_inline((yield block_named("B3")))
        yield reverse_compute_inline((yield block_named("B2")))

    assert keeps(chain(size, *BODIES), schedule)


def test_text(golden: Golden) -> None:
    def schedule() -> Body:
        b1, b2 = (yield block_named("B1")), (yield block_named("B2"))
        (i,) = yield loops(b1)
        yield split(i, (None, 4))
        yield reverse_compute_inline(b2)

    golden(show_kernel(after(chain(10, *BODIES), schedule)), "reverse_compute_inline")


def picked(rows: int, columns: int, axis_name: str = "p") -> Kernel:
    """B = A + 1; C takes the first column of its first rows, times a sum of X."""
    a, b = buffer("A", (5, 3), f32), buffer("B", (5, 3), f32)
    x, c = buffer("X", (rows, 4), f32), buffer("C", (rows, columns), f32)
    i, j, v, u = axis("i"), axis("j"), axis("v"), axis("u")
    i1, j1, w, z, p = axis("i1"), axis("j1"), axis("w"), axis("z"), axis(axis_name)
    one = block("B", (v, u), (5, 3), "ss", (i, j), Store(b, (v, u), a[v, u] + 1))
    factor = Reduce("sum", (p,), (index(4),), x[w, p])
    place = b[w, z] if columns == 3 else b[w, 0]
    two = block("C", (w, z), (rows, columns), "ss", (i1, j1), Store(c, (w, z), place * factor))
    first = For(i, index(5), "serial", For(j, index(3), "serial", one))
    then = For(i1, index(rows), "serial", For(j1, index(columns), "serial", two))
    return Kernel((), (a, x, c), 2, Alloc(b, seq(first, then)))


def test_a_reader_of_a_part() -> None:
    after(picked(5, 3), lambda: asked("C"))
    after(picked(2, 3), lambda: asked("C"))
    after(picked(2, 1), lambda: asked("C"))


def test_refusals() -> None:
    assert refusal(product_and_relu(), lambda: asked("D")) == "complete-producer"
    assert refusal(product_and_relu(), lambda: asked("C")) == "spatial-only"
    assert refusal(matmul(), lambda: asked("C")) == "spatial-only"
    assert refusal(stencil(), lambda: asked("C")) == "plain-load"
    assert refusal(stencil(), lambda: asked("B")) == "one-producer"
    assert refusal(padded(), lambda: asked("C")) == "plain-load"
    assert refusal(two_writers(), lambda: asked("C")) == "sole-writer"
    assert refusal(prefix_sums(), lambda: asked("B")) == "finished"
    assert refusal(picked(5, 3, "v"), lambda: asked("C")) == "names"


def test_a_reader_that_does_not_always_look() -> None:
    """What is not read must be computed all the same."""
    a, b, c = buffer("A", (4,), f32), buffer("B", (4,), f32), buffer("C", (6,), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    one = block("B", (v,), (4,), "s", (i,), Store(b, (v,), a[v]))
    guarded = Select(Lt(w, index(4)), b[w], lit(0, f32))
    two = block("C", (w,), (6,), "s", (j,), Store(c, (w,), guarded))
    nests = seq(For(i, index(4), "serial", one), For(j, index(6), "serial", two))
    kernel = Kernel((), (a, c), 1, Alloc(b, nests))
    assert refusal(kernel, lambda: asked("C")) == "covered"
