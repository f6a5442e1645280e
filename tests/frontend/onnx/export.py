"""Networks of the zoo as ONNX models: an independent reader can then run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from plica.core.fold import post_order
from plica.ir.graph import Apply, Const, Expr, Var
from plica.ir.module import Module
from plica.ir.type import TensorType, static_shape

Attrs = dict[str, Any]


def _window(attrs: Attrs) -> Attrs:
    """Strides and padding of two axes in ONNX's words."""
    strides, padding = attrs["strides"], attrs["padding"]
    both = strides if isinstance(strides, tuple) else (strides, strides)
    sides = padding if isinstance(padding, tuple) else (padding, padding)
    return {"strides": both, "pads": (*sides, *sides)}


def _pool(attrs: Attrs) -> Attrs:
    kernel = attrs["kernel"]
    return {"kernel_shape": (kernel, kernel), **_window(attrs)}


# fmt: off
TABLE: dict[str, tuple[str, Callable[[Attrs], Attrs]]] = {
    "nn.conv":            ("Conv",               lambda a: {"group": a["groups"], **_window(a)}),
    "nn.batch_norm":      ("BatchNormalization", lambda a: {"epsilon": a["epsilon"]}),
    "nn.relu":            ("Relu",               lambda a: {}),
    "nn.relu6":           ("Clip",               lambda a: {}),
    "nn.max_pool":        ("MaxPool",            _pool),
    "nn.global_avg_pool": ("GlobalAveragePool",  lambda a: {}),
    "nn.flatten":         ("Flatten",            lambda a: {"axis": a["axis"]}),
    "nn.dense":           ("Gemm",               lambda a: {"transB": 1}),
    "add":                ("Add",                lambda a: {}),
}
# fmt: on


def export(of: Module) -> onnx.ModelProto:
    """The model; a module of the zoo has one input and one output."""
    main = of.main_function()
    (param,) = main.params
    assert isinstance(param.type, TensorType)
    names: dict[Expr, str] = {}
    nodes: list[onnx.NodeProto] = []
    stored = [
        numpy_helper.from_array(np.asarray(0, np.float32), "zero"),
        numpy_helper.from_array(np.asarray(6, np.float32), "six"),
    ]
    for term in post_order(main.body):
        if isinstance(term, Var):
            names[term] = str(term.name)
        elif isinstance(term, Const):
            names[term] = f"w{len(stored)}"
            stored.append(numpy_helper.from_array(np.array(term.numpy()), names[term]))
        elif isinstance(term, Apply):
            kind, attributes = TABLE[term.op]
            names[term] = f"v{len(nodes)}"
            more = ["zero", "six"] if term.op == "nn.relu6" else []
            inputs = [*(names[each] for each in term.args), *more]
            settings = attributes(dict(term.attrs))
            nodes.append(helper.make_node(kind, inputs, [names[term]], names[term], **settings))
    shape = static_shape(param.type)
    graph = helper.make_graph(
        nodes,
        "zoo",
        [helper.make_tensor_value_info(str(param.name), onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=names[main.body])],
        stored,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    return made
