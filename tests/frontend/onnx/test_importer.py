"""Whole models: names, symbolic dims, functions, control flow, and networks compiled."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import plica
from plica.frontend import zoo
from plica.frontend.onnx import from_onnx
from plica.frontend.onnx.writer import to_onnx
from plica.ir.graph.expression import attr
from plica.ir.graph.module import Module
from tests.conftest import Golden
from tests.frontend.onnx.build import Array, agrees, f32_like as f32, model, runtime

node = helper.make_node


def test_names_of_inputs_and_outputs_are_kept() -> None:
    nodes = [node("Relu", ["input.1"], ["out.1"]), node("Abs", ["input.1"], ["out::2"])]
    module = from_onnx(model(nodes, {"input.1": f32(2)}, ["out.1", "out::2"]))
    main = module.main_function()
    given: dict[str, Any] = {"input.1": np.asarray([-1, 2], np.float32)}
    assert [str(each.name) for each in main.params] == ["input.1"]
    assert attr(main, "outputs") == ("out.1", "out::2")
    found = plica.interpret(module, **given)
    assert [each.tolist() for each in found] == [[0, 2], [1, 2]]


def test_bytes_paths_and_models_are_the_same_module(tmp_path: object) -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": f32(2)}, ["y"])
    whole = from_onnx(made)
    assert isinstance(whole, Module)
    assert from_onnx(made.SerializeToString()) is whole
    path = f"{tmp_path}/m.onnx"
    onnx.save(made, path)
    assert plica.from_onnx(path) is whole


# --- symbolic dims -------------------------------------------------------------------------------


def flattening() -> onnx.ModelProto:
    """What exporters write for x.view(x.size(0), -1): the shape is computed."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Concat", ["n1", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["flat"]),
        node("Gemm", ["flat", "w"], ["y"], transB=1),
    ]
    stored = {
        "zero": np.asarray(0), "first": np.asarray([0]), "rest": np.asarray([-1]), "w": f32(2, 12),
    }  # fmt: skip
    return model(nodes, {"x": ("float32", ["batch", 3, 4])}, ["y"], stored)


def test_computed_shapes_fold_into_symbolic_dims(golden: Golden) -> None:
    module = from_onnx(flattening())
    golden(str(module))
    for batch in (1, 3):
        x = f32(batch, 3, 4)
        expected = x.reshape(batch, 12) @ f32(2, 12).T
        np.testing.assert_allclose(plica.interpret(module, x), expected, rtol=1e-5)


def test_the_order_of_nodes_in_the_file_changes_nothing() -> None:
    whole = from_onnx(flattening())
    for seed in range(5):
        made = flattening()
        nodes = list(made.graph.node)
        Random(seed).shuffle(nodes)
        del made.graph.node[:]
        made.graph.node.extend(nodes)
        assert from_onnx(made) is whole


def test_dims_can_be_given_numbers() -> None:
    module = from_onnx(flattening(), dims={"batch": 2})
    assert [str(each.type) for each in module.main_function().params] == ["Tensor[(2, 3, 4), f32]"]


def test_dims_of_one_name_are_one_dim_whatever_the_name() -> None:
    nodes = [node("Add", ["x", "y"], ["z"])]
    ports: dict[str, tuple[str, list[int | str]]] = {
        "x": ("float32", ["a b/2", 3]),
        "y": ("float32", ["a b/2", 1]),
    }
    module = from_onnx(model(nodes, ports, ["z"]))
    assert str(module.main_function().ret) == 'Tensor[("a_b_2", 3), f32]'
    assert plica.interpret(module, f32(2, 3), f32(2, 1)).shape == (2, 3)


def test_halves_and_products_of_dims_are_followed() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Split", ["s"], ["n", "c"], num_outputs=2),
        node("Div", ["c", "two"], ["half"]),
        node("Mul", ["n", "two"], ["twice"]),
        node("Concat", ["twice", "half"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    made = model(nodes, {"x": ("float32", ["n", 4])}, ["y"], {"two": np.asarray([2])})
    assert plica.interpret(from_onnx(made), f32(3, 4)).shape == (6, 2)


# --- functions and control flow ------------------------------------------------------------------


def test_functions_of_the_model_are_read_in_place_with_their_attributes() -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    leaky = node("LeakyRelu", ["a"], ["m"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    nodes = [leaky, node("Add", ["m", "b"], ["c"])]
    function = helper.make_function("mine", "f", ["a", "b"], ["c"], nodes, opsets, ["slope"])
    call = node("f", ["x", "x"], ["y"], domain="mine", slope=0.5)
    graph = model([call], {"x": f32(2, 2)}, ["y"]).graph
    made = helper.make_model(graph, functions=[function], opset_imports=opsets)
    made.ir_version = 10
    agrees(made, {"x": f32(2, 2)})


def branch(*nodes: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [onnx.ValueInfoProto(name=output)])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_is_chosen_when_the_model_runs(chosen: bool) -> None:
    then = branch(node("Relu", ["x"], ["a"]), output="a")
    orelse = branch(node("Neg", ["x"], ["b"]), output="b")
    made = model(
        [node("If", ["k"], ["y"], then_branch=then, else_branch=orelse)],
        {"x": f32(3), "k": np.asarray(chosen)},
        ["y"],
    )
    agrees(made, {"x": f32(3), "k": np.asarray(chosen)})


def doubling(scan: bool) -> onnx.GraphProto:
    """x is doubled until it is large; each value may be collected."""
    info = helper.make_tensor_value_info
    nodes = [
        node("Add", ["v", "v"], ["w"]),
        node("ReduceMax", ["w"], ["top"], keepdims=0),
        node("Less", ["top", "most"], ["on"]),
        node("Identity", ["w"], ["kept"]),
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in ("on", "w", *(["kept"] if scan else []))]
    inputs = [
        info("i", onnx.TensorProto.INT64, []),
        info("c", onnx.TensorProto.BOOL, []),
        info("v", onnx.TensorProto.FLOAT, [2]),
    ]
    stored = [onnx.numpy_helper.from_array(np.asarray(100, np.float32), "most")]
    return helper.make_graph(nodes, "body", inputs, outputs, stored)


def test_a_loop_whose_end_is_computed_runs() -> None:
    made = model(
        [node("Loop", ["", "go", "x"], ["y"], body=doubling(False))],
        {"x": f32(2), "go": np.asarray(True)},
        ["y"],
    )
    for start in ([1.0, 3.0], [0.5, 0.25], [300.0, 1.0]):
        given = {"x": np.asarray(start, np.float32), "go": np.asarray(True)}
        agrees(made, given)


def test_a_loop_of_known_length_is_written_out_and_collects() -> None:
    body = doubling(True)
    body.node[2].CopyFrom(node("Identity", ["c"], ["on"]))
    made = model(
        [node("Loop", ["n", "", "x"], ["y", "all"], body=body)],
        {"x": f32(2)},
        ["y", "all"],
        {"n": np.asarray(4)},
    )
    agrees(made, {"x": f32(2)})


# --- networks ------------------------------------------------------------------------------------


def perceptron() -> onnx.ModelProto:
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["h"], transB=1),
        node("Gelu", ["h"], ["g"]),
        node("MatMul", ["g", "w1"], ["o"]),
        node("Softmax", ["o"], ["y"]),
    ]
    stored = {"w0": f32(16, 8), "b0": f32(16), "w1": f32(16, 4)}
    return model(nodes, {"x": f32(2, 8)}, ["y"], stored)


def compiled_agrees(made: onnx.ModelProto, x: Array) -> None:
    (expected,) = runtime(made, {made.graph.input[0].name: x})
    module = from_onnx(made)
    for found in (plica.interpret(module, x), plica.compile(module)(x)):
        gap = np.abs(found - expected).max()
        assert gap <= 1e-4 * np.abs(expected).max()


def test_a_perceptron_compiled_is_what_onnxruntime_says() -> None:
    compiled_agrees(perceptron(), f32(2, 8))


def test_resnet_18_compiled_is_what_onnxruntime_says() -> None:
    module = zoo.resnet(18, image=32, width=0.0625, classes=10)
    compiled_agrees(to_onnx(module), f32(1, 3, 32, 32))


def test_the_zoo_comes_back_as_it_went() -> None:
    module = zoo.mobilenet(image=32, width=0.125, classes=10)
    back = from_onnx(to_onnx(module))
    x = f32(1, 3, 32, 32)
    np.testing.assert_allclose(plica.interpret(back, x), plica.interpret(module, x), rtol=1e-5)
