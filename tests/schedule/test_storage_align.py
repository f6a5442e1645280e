"""storage_align: strides that are an offset more than a multiple."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.scalar import Scalar, index
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var, evaluate
from plica.schedule import block, storage_align
from plica.schedule.do import Body
from plica.schedule.primitive.buffer_memory import aligned
from tests.conftest import Golden
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import product_and_relu


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 8), st.booleans(), st.data()
)
def test_strides(sizes: list[int], factor: int, symbolic: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(sizes) - 1))
    offset = data.draw(st.integers(0, factor - 1))
    size = dim_var("size")
    shape: list[Scalar] = [index(each) for each in sizes]
    if symbolic:
        shape[-1] = size
    strides = [
        evaluate(each, {size: sizes[-1]}) for each in aligned(tuple(shape), axis, factor, offset)
    ]
    need = 1
    for at in range(len(sizes) - 1, -1, -1):
        stride = strides[at]
        assert stride is not None
        assert at != axis or stride % factor == offset
        assert need <= stride < need + (factor if at == axis else 1)
        need = stride * sizes[at]


def test_a_row_is_longer(golden: Golden) -> None:
    def schedule() -> Body:
        yield storage_align((yield block("C")), 0, 0, 8, 1)
        yield storage_align((yield block("A1")), 0, -2, 4, 3)

    kernel = after(product_and_relu(k=dim_var("depth")), schedule, depth=5)
    golden(show_kernel(kernel), "storage_align")


@pytest.mark.parametrize(
    ("word", "name", "args"),
    [
        ("written", "C", (1, 0, 8, 1)),
        ("intermediate", "D", (0, 0, 8, 1)),
        ("axis", "C", (0, 2, 8, 1)),
        ("axis", "C", (0, -3, 8, 1)),
        ("alignment", "C", (0, 0, 8, 8)),
        ("alignment", "C", (0, 0, 0, 0)),
        ("row-major", "A1", (0, 0, 8, 1)),
    ],
)
def test_refusals(word: str, name: str, args: tuple[int, int, int, int]) -> None:
    def schedule() -> Body:
        yield storage_align((yield block("A1")), 0, 0, 4, 1)
        yield storage_align((yield block(name)), *args)

    assert refusal(product_and_relu(), schedule) == word
