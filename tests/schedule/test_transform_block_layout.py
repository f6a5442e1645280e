"""transform_block_layout: a block iterates over another space."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import (
    block,
    compute_at,
    decompose_reduction,
    do,
    loops,
    transform_block_layout,
    unroll,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, product_and_relu
from tests.schedule.stages import Program, pipelines, roughened

N = dim_var("n")


@given(pipelines(), st.integers(1, 4), st.integers(0, 3), st.data())
def test_meaning(program: Program, f: int, kind: int, data: st.DataObject) -> None:
    maps = (
        index_map(lambda i, j, k: (j, i, k)),
        index_map(lambda i, j, k: (i // f, i % f, k, j)),
        index_map(lambda i, j, k: (i * f + j, k)),
        index_map(lambda i, j, k: (k // f, i, j, k % f)),
    )

    @do
    def schedule() -> Body:
        yield roughened(data, "C")
        yield transform_block_layout((yield block("C")), maps[kind])

    keeps(program[0], schedule, **program[1])


def test_then_its_inverse_is_the_identity() -> None:
    def schedule() -> Body:
        c = yield block("C")
        yield transform_block_layout(c, index_map(lambda i, j, k: (i * N + j, k // 2, k % 2)))
        yield transform_block_layout(c, index_map(lambda w, a, b: (w // N, w % N, a * 2 + b)))

    kernel = matmul(6, N, 4)
    assert digest(after(kernel, schedule, n=3)) == digest(kernel)


def fused() -> Body:
    of = index_map(lambda i, j, k: (i * N + j, k))
    yield transform_block_layout((yield block("C")), of)


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(matmul(6, N, 4), fused, n=3)), "transform_block_layout")


def asked(of: IndexMap, label: str = "C") -> Body:
    yield transform_block_layout((yield block(label)), of)


def test_refusals() -> None:
    kernel = matmul()
    plain = index_map(lambda i, j, k: (i, j, k))
    assert refusal(kernel, lambda: asked(index_map(lambda i: i))) == "rank"
    assert refusal(kernel, lambda: asked(index_map(lambda i, j, k: (i * N, j, k)))) == "map-dims"
    halves = index_map(lambda i, j, k: (j // 2, j % 2, i, k))
    assert refusal(kernel, lambda: asked(halves)) == "bijective"
    assert refusal(kernel, lambda: asked(index_map(lambda i, j, k: (j, i * 4 + k)))) == "one-kind"

    def unrolled() -> Body:
        yield unroll((yield loops((yield block("C"))))[0])
        yield from asked(plain)

    def moved() -> Body:
        yield compute_at((yield block("C")), (yield loops((yield block("D"))))[0])
        yield from asked(plain)

    def update() -> Body:
        c = yield block("C")
        yield decompose_reduction(c, (yield loops(c))[0])
        yield from asked(plain)

    assert refusal(kernel, unrolled) == "plain-loop"
    assert refusal(product_and_relu(), moved) == "alone"
    assert refusal(kernel, update) == "starts"
    backwards = index_map(lambda i, j, k: (i, j, 3 - k))
    assert refusal(kernel, lambda: asked(backwards)) in ("bijective", "zero")
