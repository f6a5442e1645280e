"""Windows of bytes whose channels are neighbours are products of tiles, and exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.dot_product import has_tiles
from plica.core.name import Name
from plica.ir.graph.expression import Var, const
from plica.ir.graph.module import Module
from plica.ir.type.term import tensor
from plica.pipeline import lower
from tests.schedule.default.test_dot_product import (
    HERE,
    TILES,
    Array,
    drawn,
    interpreted,
    kernels,
    whole,
    widened,
)


def laid(
    size: tuple[int, int, int], outputs: int, zero: int, of: Any = np.uint8, **attrs: Any
) -> tuple[Module, list[Array]]:
    """A convolution of bytes with channels last: its sums, and a number for each output."""
    high, wide, channels = size
    x = Var(Name("x"), tensor((1, high, wide, channels), "u8" if of is np.uint8 else "i8"))
    window = attrs.pop("window", (3, 3))
    weight = widened(const(drawn(2, (*window, channels, outputs), np.int8)))
    data = op.subtract(widened(x), const(np.array(zero, np.int32)))
    sums = op.nn.conv_laid(data, weight, layouts=("NHWC", "HWIO", "NHWC"), **attrs)
    bias = const(np.arange(outputs, dtype=np.int32))
    return whole(op.add(sums, bias), x), [drawn(1, (1, high, wide, channels), of)]


@settings(max_examples=4)
@given(
    size=st.tuples(st.integers(4, 9), st.integers(4, 9), st.sampled_from((16, 24, 64, 80))),
    outputs=st.sampled_from((16, 24, 40)),
    window=st.sampled_from(((3, 3), (1, 1), (2, 3))),
    stride=st.integers(1, 2),
    border=st.integers(0, 1),
    of=st.sampled_from((np.uint8, np.int8)),
)
def test_windows_of_tiles_are_exact(  # noqa: PLR0917  # what is drawn
    size: tuple[int, int, int], outputs: int, window: tuple[int, int], stride: int, border: int,
    of: Any,
) -> None:  # fmt: skip
    if not has_tiles(HERE):
        pytest.skip("This machine has no tiles.")
    zero = 7 if of is np.uint8 else -3
    attrs: dict[str, Any] = {"strides": (stride, stride), "padding": (border, border)}
    made, arrays = laid(size, outputs, zero, of, window=window, **attrs)
    found = plica.compile(made, cache=False, threads=1)(*arrays)
    np.testing.assert_array_equal(found, plica.interpret(made, *arrays))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_window_is_one_product_of_tiles(stride: int) -> None:
    made, _ = laid((6, 5, 32), 32, 3, strides=(stride, stride), padding=(2, 2))
    assert kernels(lower(made, target=TILES)) == ["x86.tiles_u8i8"]


def test_a_product_of_gathered_rows_means_the_window() -> None:
    made, arrays = laid((4, 5, 16), 16, 3, window=(1, 2))
    found = interpreted(made, TILES, arrays)
    np.testing.assert_array_equal(found, plica.interpret(made, *arrays))


def test_one_place_of_each_window_is_a_product_whatever_the_stride() -> None:
    made, _ = laid((9, 9, 64), 32, 0, window=(1, 1), strides=(2, 2))
    assert kernels(lower(made, target=TILES)) == ["x86.tiles_u8i8"]
