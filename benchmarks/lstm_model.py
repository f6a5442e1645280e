"""The language model of the zoo as an ONNX model, with one LSTM node per layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from plica.frontend.zoo.layer import sizes
from plica.frontend.zoo.recurrent import Weights
from plica.ir.graph.expression import Var


def lstm_to_onnx(x: Var, weights: Weights) -> onnx.ModelProto:
    """The language model over tokens `x`, of 64 bits."""
    nodes: list[onnx.NodeProto] = []
    stored: dict[str, np.ndarray[Any, Any]] = {}

    def store(values: Any) -> str:
        name = f"w{len(stored)}"
        stored[name] = np.asarray(values)
        return name

    def node(kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{kind}_{len(nodes)}"
        made = [f"{name}.{at}" if at else name for at in range(outputs)]
        nodes.append(helper.make_node(kind, inputs, made, name, **attributes))
        return name

    y, last = node("Gather", store(weights.embedding.numpy()), str(x.name), axis=0), ""
    for cell in weights.cells:
        wide = [each.numpy()[None] for each in (cell.inputs, cell.state, cell.bias)]
        wide[2] = np.concatenate([wide[2], np.zeros_like(wide[2])], axis=1)
        hidden = sizes(cell.state)[1]
        states = node("LSTM", y, *map(store, wide), outputs=2, hidden_size=hidden)
        y, last = node("Squeeze", states, store(np.asarray([1], np.int64))), f"{states}.1"
    end = node("Squeeze", last, store(np.asarray([0], np.int64)))
    out, bias = store(weights.out.numpy()), store(weights.bias.numpy())
    result = node("Gemm", end, out, bias, transB=1)
    shape = (sizes(x)[1], sizes(weights.out)[0])
    graph = helper.make_graph(
        nodes,
        "lstm",
        [helper.make_tensor_value_info(str(x.name), onnx.TensorProto.INT64, sizes(x))],
        [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(values, name) for name, values in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
