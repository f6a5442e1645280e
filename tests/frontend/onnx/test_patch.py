"""Patches that are put together to images: each place is the sum of what lies there, as numpy adds
it up patch by patch, and the adjoint of cutting them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.frontend.onnx.row.patch import MOST

Array = Any  # numpy's, of any rank
FEW = settings(max_examples=max(3, settings().max_examples // 20))


def model(x: Array, image: list[int], block: list[int], **attrs: Any) -> Any:
    node = helper.make_node("Col2Im", ["x", "i", "b"], ["y"], **attrs)
    of = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    sizes = [numpy_helper.from_array(np.array(n), at) for n, at in ((image, "i"), (block, "b"))]
    graph = helper.make_graph([node], "g", [of], [out], sizes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def drawn(draw: Any, rank: int) -> tuple[list[list[int]], list[int]] | None:
    """Image, block, strides, dilations, pads, and how many patches there are along each axis."""
    many = [[draw(st.integers(1, most)) for _ in range(rank)] for most in (9, 3, 3, 2)]
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    image, block, strides, dilations = many
    rooms = [
        image[at] + pads[at] + pads[at + rank] - (block[at] - 1) * dilations[at] - 1
        for at in range(rank)
    ]
    steps = [room // stride + 1 for room, stride in zip(rooms, strides, strict=True)]
    return ([*many, pads], steps) if min(rooms) >= 0 else None


def meant(x: Array, of: list[list[int]], steps: list[int]) -> Array:
    image, block, strides, dilations, pads = of
    rank = len(image)
    channels = x.shape[1] // int(np.prod(block))
    parts = x.reshape(x.shape[0], channels, *block, *steps)
    wide = [image[at] + pads[at] + pads[at + rank] for at in range(rank)]
    whole: Array = np.zeros((x.shape[0], channels, *wide), x.dtype)
    for place in np.ndindex(*block):
        for step in np.ndindex(*steps):
            at = [
                s * by + p * d for s, by, p, d in zip(step, strides, place, dilations, strict=True)
            ]
            whole[(..., *at)] += parts[(slice(None), slice(None), *place, *step)]
    return whole[(..., *[slice(pads[at], pads[at] + image[at]) for at in range(rank)])]


@pytest.mark.parametrize("rank", [1, 2, 3])
@FEW
@given(st.data())
def test_places_add_up_what_lies_there(rank: int, data: st.DataObject) -> None:
    if (found := drawn(data.draw, rank)) is None:
        return
    of, steps = found
    rows, count = 2 * int(np.prod(of[1])), int(np.prod(steps))
    x = np.random.default_rng(0).integers(-9, 9, (1, rows, count)).astype(np.float32)
    attrs = {"strides": of[2], "dilations": of[3], "pads": of[4]}
    mod = plica.from_onnx(model(x, of[0], of[1], **attrs))
    assert np.array_equal(plica.interpret(mod, x), meant(x, of, steps))


def test_large_patches_are_gathered() -> None:
    for block in (3, 9):
        of = [[10, 11], [block, block], [1, 1], [1, 1], [1] * 4]
        steps = [size + 2 - block + 1 for size in of[0]]
        shape = (1, block**2, steps[0] * steps[1])
        x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
        mod = plica.from_onnx(model(x, of[0], of[1], pads=of[4]))
        assert ("op.take" in str(mod)) == (block**2 > MOST)
        run = plica.compile(mod, cache=False, threads=1) if block == 3 else None
        found = plica.interpret(mod, x) if run is None else run(x)
        assert np.array_equal(found, meant(x, of, steps))
