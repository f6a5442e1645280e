"""transform_layout: a buffer's elements lie in another order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plica.core.digest import digest
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import block, do, transform_layout
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, product_and_relu, stencil
from tests.schedule.stages import Program, pipelines, roughened

FACTORS = st.integers(1, 4)


@st.composite
def layouts(draw: st.DrawFn) -> IndexMap:
    """Tilings and transpositions of two indices, some of which leave elements out."""
    f, g = draw(FACTORS), draw(FACTORS)
    return index_map(
        draw(
            st.sampled_from((
                lambda i, j: (j, i),
                lambda i, j: (i // f, j, i % f),
                lambda i, j: (i // f, j // g, i % f, j % g),
                lambda i, j: (i * f, j + g),
                lambda i, j: (i, j // g, 0, j % g),
            ))
        )
    )  # fmt: skip


@given(pipelines(), layouts(), st.data())
def test_meaning(program: Program, layout: IndexMap, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "A1", "C")
        label, side = data.draw(st.sampled_from((("C", "read"), ("C", "write"), ("D", "read"))))
        pad = data.draw(st.sampled_from((None, 0, 1)))
        yield transform_layout((yield block(label)), side, 0, layout, pad)

    keeps(program[0], schedule, **program[1])


@given(st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_then_its_inverse_is_the_identity(f: int, g: int, rows: bool) -> None:
    kernel = product_and_relu(dim_var("m") if rows else 5, f * g, 3)

    def schedule() -> Body:
        c = yield block("C")
        yield transform_layout(c, "write", 0, index_map(lambda i, j: (j // f, i, j % f)))
        yield transform_layout(c, "write", 0, index_map(lambda a, i, b: (i, a * f + b)))

    assert digest(after(kernel, schedule, m=4)) == digest(kernel)


def tiled(pad: int | None) -> Body:
    yield transform_layout(
        (yield block("B")), "write", 0, index_map(lambda i: (i // 4, i % 4)), pad
    )


def test_text(golden: Golden) -> None:
    kernel = stencil(dim_var("n"))
    plain, filled = (after(kernel, lambda pad=pad: tiled(pad), n=4) for pad in (None, 0))  # type: ignore[misc]
    golden(show_kernel(plain) + "\n" + show_kernel(filled), "transform_layout")


def asked(label: str, side: str, number: int, of: IndexMap) -> Body:
    yield transform_layout((yield block(label)), side, number, of)


def test_refusals() -> None:
    swap, flat = index_map(lambda i, j: (j, i)), index_map(lambda i, j: (i + j,))
    strange = index_map(lambda i, j: (i, j * dim_var("other")))
    kernel = product_and_relu()
    assert refusal(matmul(), lambda: asked("C", "write", 0, swap)) == "intermediate"
    assert refusal(kernel, lambda: asked("C", "both", 0, swap)) == "side"
    assert refusal(kernel, lambda: asked("C", "read", 2, swap)) == "read-index"
    assert refusal(kernel, lambda: asked("C", "write", 1, swap)) == "write-index"
    assert refusal(kernel, lambda: asked("C", "write", 0, index_map(lambda i: i))) == "rank"
    assert refusal(kernel, lambda: asked("C", "write", 0, flat)) == "injective"
    assert refusal(kernel, lambda: asked("C", "write", 0, strange)) == "map-dims"
