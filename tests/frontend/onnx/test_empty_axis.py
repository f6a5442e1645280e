"""Softmax, its like and log-sum-exp along axes that have no elements, compiled and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import plica

onnx = pytest.importorskip("onnx")


def model(kind: str, shape: tuple[int | str, ...], of: int, **attributes: int) -> bytes:
    node = onnx.helper.make_node(kind, ["x"], ["y"], **attributes)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [info("x", of, shape)], [info("y", of, None)])
    opset = [onnx.helper.make_opsetid("", 18)]
    made = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_of_nothing_is_nothing(kind: str) -> None:
    read = plica.from_onnx(model(kind, (3, 0, 2), onnx.TensorProto.FLOAT, axis=1))
    x = np.zeros((3, 0, 2), np.float32)
    assert np.asarray(plica.compile(read, cache=False, threads=1)(x)).shape == (3, 0, 2)
    assert np.asarray(plica.interpret(read, x)).shape == (3, 0, 2)


@pytest.mark.parametrize("of", [np.int32, np.int64, np.float32])
def test_the_logarithm_of_an_empty_sum_is_the_least_number(of: type) -> None:
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(of))
    read = plica.from_onnx(model("ReduceLogSumExp", (3, 0), number, keepdims=0))
    least = -np.inf if of is np.float32 else np.iinfo(of).min
    assert plica.compile(read, cache=False, threads=1)(np.zeros((3, 0), of)) == least


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_of_an_open_axis_takes_none(kind: str) -> None:
    read = plica.from_onnx(model(kind, (3, "n", 2), onnx.TensorProto.FLOAT, axis=1))
    exe = plica.compile(read, threads=1)
    for count in (5, 0):
        found = np.asarray(exe(np.ones((3, count, 2), np.float32)))
        wanted = 1 / max(count, 1)
        wanted = wanted if kind == "Softmax" else np.log(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert found.shape == (3, count, 2)
    assert exe.stats.at_call == 0


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("of", ["i4", "f4"])
def test_the_extreme_of_an_empty_open_axis_is_that_of_a_known_one(kind: str, of: str) -> None:
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(of))
    read = plica.from_onnx(model(kind, ("n", "k"), number, keepdims=0))
    known = plica.from_onnx(model(kind, (2, 0), number, keepdims=0))
    exe, nothing = plica.compile(read, threads=1), np.zeros((2, 0), of)
    assert exe(nothing) == plica.compile(known, threads=1)(nothing)
    assert exe(nothing) == plica.interpret(read, nothing)
    x = np.arange(-3, 3).astype(of).reshape(2, 3)
    assert exe(x) == (x.max() if kind == "ReduceMax" else x.min())
    assert exe.stats.at_call == 0


@pytest.mark.parametrize("of", ["i4", "i8", "f4"])
def test_the_logarithm_of_an_empty_open_sum_is_that_of_a_known_one(of: str) -> None:
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(of))
    read = plica.from_onnx(model("ReduceLogSumExp", ("n", "k"), number, keepdims=0))
    exe, nothing = plica.compile(read, cache=False, threads=1), np.zeros((2, 0), of)
    least = -np.inf if of == "f4" else np.iinfo(of).min
    assert exe(nothing) == least
    assert plica.interpret(read, nothing) == least
    wanted = np.log(8).astype(of)
    np.testing.assert_allclose(exe(np.zeros((2, 4), of)), wanted, rtol=1e-6)
    assert exe.stats.at_call == 0


def test_the_bytes_of_nothing_are_none() -> None:
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    info = onnx.helper.make_tensor_value_info
    ports = [onnx.ValueInfoProto(name=name) for name in ("y", "scale", "zero")]
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, ("n", 3))], ports)
    opset = [onnx.helper.make_opsetid("", 18)]
    made = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    exe = plica.compile(made, cache=False, threads=1)
    y, scale, zero = exe(np.zeros((0, 3), np.float32))
    assert (y.shape, float(scale), int(zero)) == ((0, 3), 1.0, 0)
    y, scale, zero = exe(np.array([[-1.0, 0.0, 254.0]], np.float32))
    assert (y.tolist(), float(scale), int(zero)) == ([[0, 1, 255]], 1.0, 1)


@pytest.mark.parametrize("shape", [(2, 0), ("n", "k")])
def test_the_greatest_of_nothing_is_nowhere(shape: tuple[int | str, ...]) -> None:
    read = plica.from_onnx(model("Hardmax", shape, onnx.TensorProto.FLOAT, axis=1))
    exe, nothing = plica.compile(read, cache=False, threads=1), np.zeros((2, 0), np.float32)
    for found in (exe(nothing), plica.interpret(read, nothing)):
        assert np.asarray(found).shape == (2, 0)
    if shape == (2, 0):
        return
    x = np.array([[1, 3, 3, -2], [-np.inf] * 4, [5, np.nan, 7, np.nan]], np.float32)
    wanted = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    np.testing.assert_array_equal(exe(x), wanted)
    np.testing.assert_array_equal(plica.interpret(read, x), wanted)
    assert exe.stats.at_call == 0
