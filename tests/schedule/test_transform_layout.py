"""transform_layout: a buffer's elements lie in another order."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies as st

import plica
from plica.core.digest import digest
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import For, Kernel, Store, block as part
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import block, do, transform_layout
from plica.schedule.do import Body
from plica.schedule.replay import kernel_of
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
        label, side = data.draw(
            st.sampled_from((
                ("C", "read"), ("C", "write"), ("D", "read"), ("A1", "read"), ("D", "write"),
            ))
        )  # fmt: skip
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


def test_a_parameter_is_copied_and_copied_back(golden: Golden) -> None:
    layout = index_map(lambda i, j: (j // 2, i, j % 2))

    read, written = (
        after(matmul(), partial(asked, "C", side, 0, layout)) for side in ("read", "write")
    )
    golden(show_kernel(read) + "\n" + show_kernel(written), "transform_layout_parameter")


@pytest.mark.parametrize("vouched", [False, True])
def test_all_elements_are_tried_where_nothing_is_shown(vouched: bool) -> None:
    mixed, met = index_map(lambda i, j: (7 * i + 5 * j,)), index_map(lambda i, j: (i + j,))
    kernel = product_and_relu(5, 4, 3)
    assert digest(after(kernel, lambda: asked("C", "write", 0, mixed, vouched))) != digest(kernel)
    assert refusal(kernel, lambda: asked("C", "write", 0, met, vouched)) == "injective"


def test_who_knows_better_vouches() -> None:
    mixed = index_map(lambda i, j: (7 * i + 5 * j,))
    kernel = product_and_relu(dim_var("m"), 4, 3)
    assert refusal(kernel, lambda: asked("C", "write", 0, mixed)) == "injective"
    assert after(kernel, lambda: asked("C", "write", 0, mixed, True), m=5) is not kernel


def asked(
    label: str,
    side: str,
    number: int,
    of: IndexMap,
    vouched: bool = False,
    *,
    pad: int | None = None,
) -> Body:
    yield transform_layout((yield block(label)), side, number, of, pad, assume_injective=vouched)


def test_refusals() -> None:
    swap, flat = index_map(lambda i, j: (j, i)), index_map(lambda i, j: (i + j,))
    strange = index_map(lambda i, j: (i, j * dim_var("other")))
    kernel = product_and_relu()
    assert refusal(kernel, lambda: asked("C", "both", 0, swap)) == "side"
    assert refusal(kernel, lambda: asked("C", "read", 2, swap)) == "read-index"
    assert refusal(kernel, lambda: asked("C", "write", 1, swap)) == "write-index"
    assert refusal(kernel, lambda: asked("C", "write", 0, index_map(lambda i: i))) == "rank"
    assert refusal(kernel, lambda: asked("C", "write", 0, flat)) == "injective"
    assert refusal(kernel, lambda: asked("C", "write", 0, strange)) == "map-dims"
    mixed, wild = index_map(lambda i, j: (7 * i + 5 * j,)), index_map(lambda i, j: (i * i, j))
    small = product_and_relu(5, 4, 3)
    assert refusal(small, lambda: asked("C", "write", 0, mixed, pad=0)) == "pad"
    assert refusal(small, lambda: asked("C", "write", 0, wild)) == "image"


def test_an_output_that_is_not_written_whole_is_refused() -> None:
    x, y, i, v = buffer("x", (6,), f32), buffer("y", (6,), f32), axis("i"), axis("v")
    copy = part("B", (v,), (4,), "s", (i,), Store(y, (v,), x[v]))
    kernel = Kernel((), (x, y), 1, For(i, index(4), "serial", copy))
    assert refusal(kernel, lambda: asked("B", "write", 0, index_map(lambda i: 2 * i))) == "covered"


def test_what_an_intrinsic_takes_as_it_lies_is_refused_in_any_shape() -> None:
    program = plica.from_text("""
@plica.kernel
def kernel(x: Buffer[(2, 2), f32], w: Buffer[(2, 2), f32], z: Buffer[(2, 2), f32]):
    y = alloc(Buffer[(2, 2), f32])
    for i, j in grid(2, 2):
        with block("y", spatial=(i, j)):
            y[i, j] = x[i, j] + 1.0
    with block("z"):
        reads(y[0:2, 0:2], w[0:2, 0:2], z[0:2, 0:2])
        writes(z[0:2, 0:2])
        invoke("fuzz.product_f32", y[0:2, 0:2], w[0:2, 0:2], z[0:2, 0:2], 2, 2, 2)
""")
    for layout in (lambda i, j: (j, i), lambda i, j: (i // 2, j, i % 2)):
        turn = partial(asked, "y", "write", 0, index_map(layout))
        assert refusal(kernel_of(program)[2], turn) == "element-accesses"
