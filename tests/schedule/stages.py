"""Programs of several stages with random sizes, for steps that move data between them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.loop.scalar import And, Le, Lt, Select, index, lit
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import ScheduleRefused, block as block_named, loops, reorder, split
from plica.schedule.do import Body, do
from tests.schedule.kernel import product_and_relu, stencil

Program = tuple[Kernel, dict[str, int]]


@st.composite
def pipelines(draw: DrawFn) -> Program:
    """A doubling A1, a product C and a clipping D, some sizes symbolic, and numbers for those."""
    sizes = {name: draw(st.integers(1, most)) for name, most in (("m", 6), ("n", 5), ("k", 4))}
    given = [dim_var(each) if draw(st.booleans()) else size for each, size in sizes.items()]
    return product_and_relu(*given), sizes


@st.composite
def stencils(draw: DrawFn) -> Program:
    """A block B and sums C over windows of it."""
    size, width = draw(st.integers(1, 11)), draw(st.integers(1, 4))
    return stencil(dim_var("n") if draw(st.booleans()) else size, width), {"n": size}


def padded(size: int = 6) -> Kernel:
    """B = A + 1, C[i] = B[i - 1] between its ends and 0 at them: a load behind a guard."""
    a, b, c = buffer("A", (size,), f32), buffer("B", (size,), f32), buffer("C", (size + 2,), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    there = And(Le(index(1), w), Lt(w, index(size + 1)))
    first = block("B", (v,), (size,), "s", (i,), Store(b, (v,), a[v] + 1))
    guarded = Store(c, (w,), Select(there, b[w - 1], lit(0, f32)))
    then = block("C", (w,), (size + 2,), "s", (j,), guarded)
    nests = seq(For(i, index(size), "serial", first), For(j, index(size + 2), "serial", then))
    return Kernel((), (a, c), 1, Alloc(b, nests))


def prefix_sums() -> Kernel:
    """X[i] sums A[i, 0..k]; B keeps every partial sum, C reads them."""
    a, x = buffer("A", (3, 4), f32), buffer("X", (3,), f32)
    b, c = buffer("B", (4, 3), f32), buffer("C", (4, 3), f32)
    names = ["k", "i", "vi", "vk", "i1", "vk1", "vi1", "k2", "i2", "vk2", "vi2"]
    k, i, vi, vk, i1, vk1, vi1, k2, i2, vk2, vi2 = (axis(each) for each in names)
    add = Store(x, (vi,), x[vi] + a[vi, vk])
    total = block("X", (vi, vk), (3, 4), "sr", (i, k), add, Store(x, (vi,), lit(0, f32)))
    keep = block("B", (vk1, vi1), (4, 3), "ss", (k, i1), Store(b, (vk1, vi1), x[vi1]))
    out = block("C", (vk2, vi2), (4, 3), "ss", (k2, i2), Store(c, (vk2, vi2), b[vk2, vi2] * 2))
    both = seq(For(i, index(3), "serial", total), For(i1, index(3), "serial", keep))
    last = For(k2, index(4), "serial", For(i2, index(3), "serial", out))
    body = seq(For(k, index(4), "serial", both), last)
    return Kernel((), (a, c), 1, Alloc(x, Alloc(b, body)))


def two_writers() -> Kernel:
    """B is written by two blocks, then read by C."""
    a, b, c = (buffer(name, (4,), f32) for name in "ABC")
    stmts: list[Stmt] = []
    for number, (label, target, value) in enumerate((("B", b, a), ("more", b, a), ("C", c, b))):
        i, v = axis("i", number), axis("v", number)
        inside = block(label, (v,), (4,), "s", (i,), Store(target, (v,), value[v] + number))
        stmts.append(For(i, index(4), "serial", inside))
    return Kernel((), (a, c), 1, Alloc(b, seq(*stmts)))


def strange() -> Kernel:
    """A branch outside any block."""
    a, c = buffer("A", (4,), f32), buffer("C", (4,), f32)
    i, v, j = axis("i"), axis("v"), axis("j")
    inside = block("C", (v,), (4,), "s", (i,), Store(c, (v,), a[v] + 1))
    more = Branch(Lt(j, index(2)), Store(c, (j,), lit(0, f32)), seq())
    loop = For(j, index(4), "serial", more)
    return Kernel((), (a, c), 1, seq(loop, For(i, index(4), "serial", inside)))


@do
def roughened(data: st.DataObject, *labels: str) -> Body:
    """Random splits and orders of the loops around blocks, as far as they are legal."""
    for label in labels:
        of = yield block_named(label)
        for _ in range(data.draw(st.integers(0, 2))):
            around = yield loops(of)
            factor = data.draw(st.integers(1, 4))
            try:
                if data.draw(st.booleans()):
                    yield split(data.draw(st.sampled_from(around)), (None, factor))
                else:
                    yield reorder(*data.draw(st.permutations(around)))
            except ScheduleRefused:
                continue
