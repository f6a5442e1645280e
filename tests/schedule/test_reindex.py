"""reindex: a copy in the order of a block's variables."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import For, Kernel, Store, block
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dtype import f32
from plica.schedule import block as block_named, compute_at, do, loops, reindex
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, product_and_relu, stencil
from tests.schedule.stages import Program, padded, pipelines, roughened, strange, two_writers


def windows(offset: int = 0) -> Kernel:
    """C[i, j] = A[i * 2 + j]."""
    a, c = buffer("A", (9,), f32), buffer("C", (4, 3), f32)
    i, j, v, u = axis("i"), axis("j"), axis("v"), axis("u")
    inside = block("C", (v, u), (4, 3), "ss", (i, j), Store(c, (v, u), a[v * 2 + u + offset]))
    nest = For(i, index(4), "serial", For(j, index(3), "serial", inside))
    return Kernel((), (a, c), 1, nest)


def asked(
    label: str, side: str, number: int = 0, scope: str = "global", of: IndexMap | None = None
) -> Body:
    yield reindex((yield block_named(label)), side, number, scope, of)


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    maps = (None, index_map(lambda i, j, k: (k, j, i)), index_map(lambda i, j, k: (j, i * 2)))

    @do
    def schedule() -> Body:
        yield roughened(data, "C")
        side, number = data.draw(st.sampled_from((("read", 0), ("read", 1), ("write", 0))))
        yield from asked("C", side, number, "shared", data.draw(st.sampled_from(maps)))

    keeps(program[0], schedule, **program[1])


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(windows(), lambda: asked("C", "read"))), "reindex")


def test_refusals() -> None:
    assert refusal(strange(), lambda: asked("C", "read")) == "stage-pipeline"
    assert refusal(matmul(), lambda: asked("C", "both")) == "side"
    assert refusal(matmul(), lambda: asked("C", "read", 2)) == "read-index"
    assert refusal(matmul(), lambda: asked("C", "write", 1)) == "write-index"
    assert refusal(matmul(), lambda: asked("C", "read", 0, "nowhere")) == "scope"
    assert refusal(stencil(), lambda: asked("C", "read")) == "one-place"
    assert refusal(padded(), lambda: asked("C", "read")) == "in-bounds"
    assert refusal(two_writers(), lambda: asked("C", "read")) == "sole-writer"
    assert refusal(two_writers(), lambda: asked("B", "write")) == "sole-writer"
    pair, lost = index_map(lambda i, j: (i, j)), index_map(lambda i, j, k: (j, k))
    assert refusal(matmul(), lambda: asked("C", "read", 0, "global", pair)) == "rank"
    assert refusal(matmul(), lambda: asked("C", "read", 0, "global", lost)) == "injective"
    every = index_map(lambda i, j, k: (i, j, k))
    assert refusal(matmul(), lambda: asked("C", "write", 0, "global", every)) == "spatial-only"


def test_a_shared_loop() -> None:
    def schedule() -> Body:
        yield compute_at((yield block_named("C")), (yield loops((yield block_named("D"))))[0])
        yield from asked("D", "read")

    assert refusal(product_and_relu(), schedule) == "written-before"
