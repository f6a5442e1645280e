"""Tensors that are never negative: what is said of them is true, and no least element is sought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import plica

Array = np.ndarray[Any, Any]

NUMBERS = np.array([[np.nan, 1.5, -2.0, -0.0], [0.0, -3e38, 2e-45, 7.25], [1, -1, 6.5, 1e9]])


def quantised(before: list[Any], values: dict[str, Array]) -> Any:
    """A model that quantises what some nodes make of x."""
    node = helper.make_node("DynamicQuantizeLinear", ["found"], ["y", "s", "z"])
    graph = helper.make_graph(
        [*before, node], "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, ()),
         helper.make_tensor_value_info("z", TensorProto.UINT8, ())],
        [numpy_helper.from_array(each, name) for name, each in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def relu(of: str, out: str) -> Any:
    return helper.make_node("Relu", [of], [out])


BOUNDS = {"low": np.float32(0), "high": np.float32(6)}
CASES: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "relu": ([relu("x", "found")], {}, True),
    "clip": ([helper.make_node("Clip", ["x", "low", "high"], ["found"])], BOUNDS, True),
    "product": (
        [relu("x", "a"), helper.make_node("Mul", ["a", "a"], ["b"]),
         helper.make_node("Transpose", ["b"], ["found"])],
        {}, True,
    ),
    "difference": ([relu("x", "a"), helper.make_node("Sub", ["a", "x"], ["found"])], {}, False),
    "shifted": (
        [relu("x", "a"), helper.make_node("Add", ["a", "by"], ["found"])],
        {"by": np.float32(-1)}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bytes_of_what_is_never_negative_are_onnxruntimes(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    before, values, never = CASES[name]
    model = quantised(before, {key: np.asarray(each) for key, each in values.items()})
    exe = plica.compile(model, cache=False)
    assert ("def min" in exe.source("kernel")) is not never
    session = onnxruntime.InferenceSession(model.SerializeToString())
    numbers = NUMBERS.astype(np.float32)
    for x in (np.nan_to_num(numbers, nan=0.5), np.zeros_like(numbers), -np.ones_like(numbers)):
        for mine, theirs in zip(exe(x), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    byte, scale, zero = exe(numbers)  # nan is in everything that is made of its extremes
    assert np.isnan(scale)
    assert not byte.any()
    assert zero == 0
