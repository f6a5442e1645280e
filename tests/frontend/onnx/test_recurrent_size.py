"""Recurrent networks of usual sizes, compiled for one thread, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import plica

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_a_gru_of_128_compiles_for_one_thread(linear_before_reset: int) -> None:
    rng = np.random.default_rng(0)
    hidden, width, steps = 128, 64, 5
    shapes = {
        "W": (1, 3 * hidden, width),
        "R": (1, 3 * hidden, hidden),
        "B": (1, 6 * hidden),
    }
    weights = [
        onnx.numpy_helper.from_array((rng.standard_normal(shape) / 10).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = onnx.helper.make_node(
        "GRU",
        ["x", "W", "R", "B"],
        ["y", "last"],
        hidden_size=hidden,
        linear_before_reset=linear_before_reset,
    )
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "gru",
        [info("x", kind, [steps, 1, width])],
        [info("y", kind, None), info("last", kind, None)],
        weights,
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    x = rng.standard_normal((steps, 1, width)).astype(np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = plica.compile(plica.from_onnx(model), cache=False, threads=1)(x)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
