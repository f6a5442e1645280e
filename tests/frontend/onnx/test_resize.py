"""Resize by whole factors: elements repeated along rows, in lanes where sizes allow that."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.frontend.onnx.row.resize import (
    NEAREST,
    ResizeGrid,
    ResizeKernel,
    number,
    repeats,
    weights,
)
from plica.ir.loop.scalar import index

MODES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
)  # fmt: skip


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("mode", MODES)
def test_a_repeated_axis_is_what_weights_say(mode: str, nearest: str) -> None:
    kernel = ResizeKernel("nearest", nearest)
    for scale in (1, 2, 3, 4, 7):
        for size in (1, 2, 5, 8):
            grid = ResizeGrid(index(size), index(size * scale), number(float(scale)), mode)
            if (times := repeats(grid, kernel)) is not None:
                chosen = weights(grid, kernel).argmax(axis=1)
                np.testing.assert_array_equal(chosen, np.arange(size * scale) // times)


def test_plain_factors_are_repeats() -> None:
    def times(mode: str, scale: float, nearest: str = "round_prefer_floor") -> int | None:
        grid = ResizeGrid(index(6), index(int(6 * scale)), number(scale), mode)
        return repeats(grid, ResizeKernel("nearest", nearest))

    assert times("half_pixel", 2.0) == times("asymmetric", 2.0, "floor") == 2
    assert times("asymmetric", 2.0, "ceil") is times("half_pixel", 1.5) is None
    assert times("align_corners", 3.0) is None


def upsampled(scale: int, *sizes: int | str) -> onnx.ModelProto:
    """Rows and columns of an image, repeated."""
    scales = numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales")
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph([node], "upsampled", [x], [y], [scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_repeated_rows_are_right_in_every_lane(scale: int) -> None:
    random = np.random.default_rng(0)
    open_sizes = plica.compile(upsampled(scale, 1, 3, "h", "w"), cache=False, threads=1)
    for height, width in ((1, 1), (2, 5), (3, 16), (2, 33), (1, 70)):
        x = random.standard_normal((1, 3, height, width)).astype(np.float32)
        meant = x.repeat(scale, axis=2).repeat(scale, axis=3)
        np.testing.assert_array_equal(open_sizes(x), meant)
        known = plica.compile(upsampled(scale, *x.shape), cache=False, threads=1)
        np.testing.assert_array_equal(known(x), meant)
