"""Dims: one name for each open size, numbers for them, and values in place of inputs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

import plica
from plica.frontend.onnx.dim import Dims, identifier
from tests.frontend.onnx.build import model, runtime

WORDS = st.sampled_from(["", "n", "x_0", "x_1", "a b", "a_b", "a.b", "x", "y", "1", "é", "x_0_2"])


def infos(*shapes: list[str]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [each or None for each in shape])
        for name, shape in zip("xyz", shapes, strict=False)
    ]


@given(st.lists(st.lists(WORDS, max_size=3), min_size=1, max_size=3))
def test_two_dims_never_share_a_name(shapes: list[list[str]]) -> None:
    inputs = infos(*shapes)
    dims = Dims(inputs)
    met: dict[Any, object] = {}
    for each, shape in zip(inputs, shapes, strict=True):
        for at, (said, ours) in enumerate(zip(shape, dims.of(each), strict=True)):
            meant: object = said or (each.name, at)
            assert met.setdefault(ours, meant) == meant
            assert isinstance(ours, str)
            assert ours.isidentifier()
            assert ours not in {each.name for each in inputs}
    # Every name, ours and the file's, gives a number to the one dim it means.
    for ours, origin in met.items():
        assert dims.sizes({ours: 3}) == {ours: 3}
        if isinstance(origin, str):
            assert dims.sizes({origin: 3}) == {ours: 3}


def test_a_dim_without_a_name_is_not_one_that_has_its_name() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["z"], ["w"])]
    made = model(nodes, {"x": ("float32", [None, 2]), "z": ("float32", ["x_0", 2])}, ["y", "w"])
    x, z = np.ones((3, 2), np.float32), np.ones((5, 2), np.float32)
    assert [each.shape for each in plica.compile(made)(x, z)] == [(3, 2), (5, 2)]
    assert [each.shape for each in plica.interpret(plica.from_onnx(made), x, z)] == [(3, 2), (5, 2)]


@pytest.mark.parametrize(
    ("text", "ours"),
    [("w_", "w_"), ("_w", "w"), ("floor(h/2)", "floor_h_2"), ("2", "d2"), ("__", "d"), ("é", "d")],
)
def test_a_dim_is_called_as_near_to_its_name_as_can_be(text: str, ours: str) -> None:
    assert identifier(text, set()) == ours


def relu() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    return model(nodes, {"x": ("float32", ["a b", 2]), "b": ("float32", ["a b", 2])}, ["y"])


@pytest.mark.parametrize("name", ["a b", "a_b"])
def test_a_dim_has_the_name_of_the_file_and_ours(name: str) -> None:
    dims: Any = {name: np.int64(3)}
    module = plica.from_onnx(relu(), dims=dims)
    assert str(module.main_function().ret) == "Tensor[(3, 2), f32]"


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ({"n": 3}, "input-unknown"),
        ({"a_b": 2.5}, "input-type"),
        ({"a_b": "3"}, "input-type"),
        ({"a_b": True}, "input-type"),
        ({"a_b": -1}, "input-shape"),
        ({"a_b": 1 << 63}, "input-shape"),
        ({"a_b": 1, "a b": 2}, "input-shape"),
    ],
)
def test_what_is_no_size_of_a_dim_is_refused(dims: dict[str, Any], code: str) -> None:
    with pytest.raises(plica.InputError) as caught:
        plica.from_onnx(relu(), dims=dims)
    assert caught.value.code == code


def test_the_nearest_dim_is_suggested() -> None:
    with pytest.raises(plica.InputError) as caught:
        plica.from_onnx(relu(), dims={"a_c": 3})
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'a_b'?"


def test_a_value_says_the_sizes_of_its_input_and_of_others() -> None:
    b = np.ones((3, 2), np.float32)
    module = plica.from_onnx(relu(), fixed={"b": b})
    assert [str(each.type) for each in module.main_function().params] == ["Tensor[(3, 2), f32]"]
    for wrong in (b[:, :1], b[0], b[None]):
        with pytest.raises(plica.InputError, match="wrong shape"):
            plica.from_onnx(relu(), fixed={"b": wrong})
    with pytest.raises(plica.InputError, match="wrong shape"):
        plica.from_onnx(relu(), dims={"a b": 4}, fixed={"b": b})
    with pytest.raises(plica.InputError, match="input-type"):
        plica.from_onnx(relu(), fixed={"b": b.astype(np.float64)})


def test_a_stored_tensor_may_be_given_another_value() -> None:
    stored = {"w": np.array([1, 2], np.float32)}
    x = np.ones(2, np.float32)
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": x}, ["y"], stored)
    other = plica.from_onnx(made, fixed={"w": np.array([5, 6], np.float32)})
    assert plica.interpret(other, x).tolist() == [6, 7]
    with pytest.raises(plica.InputError, match="does not fit"):
        plica.from_onnx(made, fixed={"w": np.ones(3, np.float32)})


@pytest.mark.parametrize("start", [-1, -2, -4])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_slice_backwards_from_before_an_open_axis_begins_at_its_first(
    start: int, size: int
) -> None:
    """Python has nothing there; the standard has the first element."""
    stored = {name: np.array([at]) for name, at in zip("abcd", (start, -9, 0, -1), strict=True)}
    node = helper.make_node("Slice", ["x", *"abcd"], ["y"])
    made = model([node], {"x": ("float32", ["n", 2])}, ["y"], stored)
    x = np.arange(2.0 * size, dtype=np.float32).reshape(size, 2)
    wanted = x[max(start + size, 0) :: -1]
    np.testing.assert_array_equal(plica.interpret(plica.from_onnx(made), x), wanted)


def test_what_exporters_write_for_any_size_is_open() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, "?", "?", 3])
    assert Dims([x]).of(x) == ("x_0", "x_1", "x_2", 3)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    made = plica.compile(helper.make_model(graph, opset_imports=opset, ir_version=8), threads=1)
    for shape in ((1, 2, 4, 3), (2, 5, 1, 3)):
        given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(made(given), np.maximum(given, 0))
    assert made.stats.at_call == 0


def reusing(*rest: onnx.NodeProto) -> onnx.ModelProto:
    """A model that calls the width of features and that of places by one name."""
    nodes = [
        helper.make_node("MatMul", ["features", "w"], ["a"]),
        helper.make_node("Cast", ["places"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["b", "last"], ["c"]),
        *rest,
    ]
    inputs: Any = {"features": ("float32", ["n", "width"]), "places": ("int64", ["n", "width"])}
    stored = {"w": np.ones((8, 3), np.float32), "last": np.array([1])}
    return model(nodes, inputs, ["y"], stored)


def features(rows: int, width: int) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    return {
        "features": random.standard_normal((rows, 8)).astype(np.float32),
        "places": random.integers(0, 4, (rows, width)),
    }


ADDED = helper.make_node("Add", ["a", "c"], ["y"])
CUT = (helper.make_node("Add", ["a", "c"], ["d"]), helper.make_node("NonZero", ["d"], ["y"]))


@pytest.mark.parametrize("rest", [(ADDED,), CUT])
def test_inputs_that_contradict_a_name_make_its_axes_dims_of_their_own(rest: Any) -> None:
    of = reusing(*rest)
    exe = plica.compile(of, threads=1, cache=False)
    np.testing.assert_array_equal(exe(**features(3, 8)), runtime(of, features(3, 8))[0])
    with pytest.warns(RuntimeWarning, match="width is 8 in 'features', 2 in 'places'"):
        found = exe(**features(3, 2))
    np.testing.assert_allclose(found, runtime(of, features(3, 2))[0], rtol=1e-6)
    with warnings.catch_warnings():  # it is said once
        warnings.simplefilter("error")
        for rows, width in ((4, 2), (5, 7), (2, 8)):
            given_ = features(rows, width)
            np.testing.assert_allclose(exe(**given_), runtime(of, given_)[0], rtol=1e-6)


def test_a_contradiction_in_which_the_model_does_not_type_stays_an_error() -> None:
    exe = plica.compile(reusing(ADDED), threads=1, cache=False)
    for _ in range(2):
        with pytest.raises(plica.InputError, match="Input 'places' has the wrong shape"):
            exe(features=features(3, 2)["features"], places=features(4, 2)["places"])
