"""Mapping: strips, windows and groups mean what the layer meant, and fill idle machines."""

from __future__ import annotations

import numpy as np
from hypothesis import given as drawn, strategies as st

from plica.codegen.accel.layer import AccelLayer, layer_of
from plica.codegen.accel.mapping import groups, mapped, strips, windows
from plica.codegen.accel.offload import offload
from plica.codegen.accel.target import AccelTarget
from plica.codegen.accel.vta import vta
from plica.ir.graph.expression import Var
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.quantise.form import integer_convolutions
from tests.codegen.accel.machines import OUTER
from tests.codegen.accel.network import Layers, given, network


@drawn(
    st.integers(1, 3), st.integers(3, 11), st.integers(1, 2), st.integers(0, 2), st.integers(2, 9)
)
def test_strips_mean_the_same(batch: int, size: int, stride: int, pad: int, rows: int) -> None:
    x = given((batch, 3, size, size))
    module = network((x,), Layers(size).conv(x, 4, stride=stride, pad=pad))
    (layer,) = integer_convolutions(module)
    assert isinstance(x, Var)
    if (made := strips(layer, x, rows)) is None:
        return
    data = np.random.default_rng(rows).integers(-128, 128, (batch, 3, size, size), np.int8)
    wanted = interpret(network((x,), layer.root), data)
    np.testing.assert_array_equal(interpret(network((x,), made), data), wanted)


@drawn(
    st.integers(1, 2), st.integers(5, 9), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2),
    st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_windows_mean_the_same(  # noqa: PLR0917  # what a convolution has
    batch: int, size: int, kernel: int, stride: int, pad: int, dilation: int, each: bool
) -> None:
    x = given((batch, 3, size, size + 1))
    made_of = Layers(size).conv(
        x, 5, kernel, stride=stride, pad=pad, dilation=dilation, each=each, bias=not each
    )
    (layer,) = integer_convolutions(network((x,), made_of))
    made = windows(layer, x, 1)
    assert made is not None
    data = np.random.default_rng(size).integers(-128, 128, (batch, 3, size, size + 1), np.int8)
    wanted = interpret(network((x,), layer.root), data)
    np.testing.assert_array_equal(interpret(network((x,), made), data), wanted)


def test_few_channels_fill_blocks_as_windows() -> None:
    x = given((1, 3, 12, 12))
    module = network((x,), Layers(0).conv(x, 16, 7, stride=2, pad=3))
    placed = offload(module, AccelTarget("vta", vta())).placement
    assert placed == "accel:vta: 1 of 1 integer layers\n  accel  36x147 -> 16, dense\n"


def test_groups_mean_the_same() -> None:
    x = given((2, 8, 5, 5))
    module = network((x,), Layers(0).conv(x, 12, groups=4))
    (layer,) = integer_convolutions(module)
    made = groups(layer, x, 1)
    assert made is not None
    data = np.random.default_rng(0).integers(-128, 128, (2, 8, 5, 5), np.int8)
    wanted = interpret(network((x,), layer.root), data)
    np.testing.assert_array_equal(interpret(network((x,), made), data), wanted)


def test_one_image_fills_a_machine_of_eight_rows() -> None:
    x = given((1, 16, 9, 9))
    module = network((x,), Layers(0).conv(x, 16, groups=2))
    (before,) = integer_convolutions(module)
    assert not isinstance(layer_of(OUTER, before), AccelLayer)
    after = integer_convolutions(mapped(module, OUTER))
    assert [isinstance(layer_of(OUTER, each), AccelLayer) for each in after] == [True, True]
    placed = offload(module, AccelTarget("outer", OUTER)).placement
    assert placed.startswith("accel:outer: 2 of 2 integer layers")


def test_what_fits_as_it_stands_stays_as_it_is() -> None:
    x = given((8, 16, 5, 5))
    module = network((x,), Layers(0).conv(x, 16))
    assert mapped(module, OUTER) is module
