"""MaxPool's second output: where the greatest elements lie, as onnxruntime says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 8, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 7, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 7, 9), {"kernel_shape": [3, 2], "strides": [2, 1], "storage_order": 1}),
    ((1, 2, 9, 9), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    ((1, 2, 7, 7), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((2, 2, 11), {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
]


@pytest.mark.parametrize(("shape", "attributes"), CASES, ids=range(len(CASES)))
def test_places_are_those_of_onnxruntime(
    shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    node = onnx.helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)
    info = onnx.helper.make_tensor_value_info
    given, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info("x", given, shape)],
        [info("y", given, None), info("places", whole, None)],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)  # with equal ones
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = plica.compile(plica.from_onnx(model), cache=False, threads=1)(x)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
