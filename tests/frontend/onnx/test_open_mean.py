"""Means and products after windows over open heights and widths, at sizes that are not square."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import plica

RANDOM = np.random.default_rng(1)
SWAP = {"perm": [0, 1, 3, 2]}
SIZES = ((8, 8), (8, 16), (9, 14))


def model(*nodes: onnx.NodeProto, outputs: int) -> onnx.ModelProto:
    weight = RANDOM.standard_normal((outputs, 4, 3, 3)).astype("f4")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.ones((), "f4"), "one")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:  # as ONNX
    return helper.make_node(kind, inputs.split(), [output], **attributes)


WINDOW = {"strides": [2, 2], "pads": [1] * 4}
FIRST = {
    "conv": node("Conv", "x w", "a", **WINDOW),
    "max pool": node("MaxPool", "x", "a", kernel_shape=[3, 3], **WINDOW),
    "add": node("Add", "x one", "a"),
}
MEANS = {
    "pool": node("GlobalAveragePool", "a", "y"),
    "mean": node("ReduceMean", "a", "y", axes=[2, 3]),
    "mean of rows": node("ReduceMean", "a", "y", axes=[3]),
}


def swapped(stride: int, twice: bool) -> onnx.ModelProto:
    conv = node("Conv", "p w", "q", strides=[stride] * 2, pads=[1] * 4)
    chain = [node("Transpose", "x", "p", **SWAP), conv, node("Transpose", "q", "r", **SWAP),
             node("Transpose", "r", "s", **SWAP)]  # fmt: skip
    if not twice:
        return model(*chain, node("MatMul", "r s", "y"), outputs=4)
    back = node("Transpose", "s", "t", **SWAP)
    return model(*chain, back, node("MatMul", "s t", "y"), outputs=4)


CASES = {
    **{f"{a}, {b}": model(FIRST[a], MEANS[b], outputs=8) for a in FIRST for b in MEANS},
    **{f"product {n} {t}": swapped(n, t) for n in (1, 2) for t in (False, True)},
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_are_not_square(name: str) -> None:
    session = onnxruntime.InferenceSession(CASES[name].SerializeToString())
    exe = plica.compile(CASES[name], threads=1, cache=False, effort="fast")
    for height, width in SIZES:
        x = RANDOM.standard_normal((2, 4, height, width)).astype("f4")
        (meant,) = session.run(None, {"x": x})
        np.testing.assert_allclose(exe(x), meant, rtol=0, atol=2e-5 * np.abs(meant).max())
