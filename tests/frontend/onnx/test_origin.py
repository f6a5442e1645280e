"""Every operator of a module that was read knows the nodes it comes from."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import plica
from plica.core.digest import digest
from plica.core.fold import post_order
from plica.frontend.onnx import from_onnx
from plica.frontend.onnx.origin import read_onnx
from plica.frontend.onnx.writer import to_onnx
from plica.ir.graph.expression import Apply
from tests.frontend.zoo.small import SMALL


@pytest.mark.parametrize("name", ["mlp", "resnet18", "mobilenet_v2", "transformer", "dcgan"])
def test_every_operator_has_a_node_and_every_node_an_operator(name: str) -> None:
    model = to_onnx(SMALL[name]())
    read = read_onnx(model)
    assert digest(read.module) == digest(from_onnx(model))
    named = set()
    for node in post_order(read.module.main_function().body):
        if isinstance(node, Apply):
            assert read.nodes[node]
            named |= set(read.nodes[node])
    assert named == {node.name for node in model.graph.node}


def test_what_two_nodes_compute_alike_belongs_to_both() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "first"),
        helper.make_node("Exp", ["x"], ["b"], "second"),
        helper.make_node("Add", ["a", "b"], ["y"], "sum"),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    found = set(read_onnx(model).nodes.values())
    assert found == {("first", "second"), ("sum",)}


def test_an_index_outside_is_said_of_the_node_and_of_nothing_it_was_fused_with() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [2])
    nodes = [
        helper.make_node("Slice", ["x", "zero", "two"], ["part"], "first two"),
        helper.make_node("ScatterElements", ["x", "at", "part"], ["y"], "put", axis=0),
    ]
    numbers = [
        helper.make_tensor(name, TensorProto.INT64, [1], [number])
        for name, number in (("zero", 0), ("two", 2))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x, at], [y], numbers),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    exe = plica.compile(model, cache=False)
    with pytest.raises(plica.PlicaError) as error:
        exe(np.zeros(4, np.float32), np.array([1, 9]))
    assert "put: An index is outside the tensor that it selects from." in str(error.value)
    assert "interpret" not in str(error.value)


def test_an_index_outside_names_the_inputs_it_depends_on() -> None:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["ids", "shift"], ["at"], "moved"),
        helper.make_node("Gather", ["x", "at"], ["y"], "picked"),
    ]
    ports = [
        info("x", TensorProto.FLOAT, ["n", 3]),
        info("ids", TensorProto.INT64, ["lens"]),
        info("shift", TensorProto.INT64, [1]),
    ]
    graph = helper.make_graph(nodes, "g", ports, [info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    exe = plica.compile(model, cache=False)
    with pytest.raises(plica.PlicaError, match="which depends on 'ids', 'shift'") as error:
        exe(np.zeros((4, 3), np.float32), np.array([0, 9]), np.array([1]))
    assert error.value.code == "index-out-of-bounds"
