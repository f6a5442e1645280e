"""Indices outside the data are refused, in code and by the interpreter, by the name of the node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import plica
from tests.frontend.onnx.build import Array, one, runtime


def arrays(kind: str, at: int) -> tuple[Array, Array, Array]:
    data = np.zeros((4, 3), np.float32)
    if kind == "ScatterND":
        return data, np.array([[1], [at]]), np.ones((2, 3), np.float32)
    return data, np.array([[1, at, 0]]), np.ones((1, 3), np.float32)


@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("at", [-5, -4, -1, 0, 3, 4, 9])
def test_what_is_outside_is_refused(kind: str, at: int) -> None:
    given = arrays(kind, at)
    made = one(kind, given)
    named = {f"x{number}": each for number, each in enumerate(given)}
    for run in (plica.compile(made), lambda **x: plica.interpret(plica.from_onnx(made), **x)):
        if -4 <= at < 4:
            np.testing.assert_array_equal(run(**named), runtime(made, named)[0])
        else:
            with pytest.raises(plica.PlicaError, match="index-out-of-bounds"):
                run(**named)


def test_indices_of_no_axes_mean_the_whole() -> None:
    data, updates = np.zeros((2, 2), np.float32), np.ones((1, 2, 2), np.float32)
    made = one("ScatterND", (data, np.zeros((1, 0), np.int64), updates))
    found = plica.compile(made)(data, np.zeros((1, 0), np.int64), updates)
    np.testing.assert_array_equal(found, updates[0])


def lookups(size: int | str, *names: str) -> ModelProto:
    """Two takes one after another, by the names of their nodes."""
    first = helper.make_node("Gather", ["x", "i"], ["g"], name=names[0], axis=0)
    second = helper.make_node("Gather", ["g", "j"], ["y"], name=names[1], axis=1)
    info = helper.make_tensor_value_info
    given = [
        info("x", TensorProto.FLOAT, [size, 4]),
        info("i", TensorProto.INT64, [2]),
        info("j", TensorProto.INT64, [3]),
    ]
    graph = helper.make_graph([first, second], "g", given, [info("y", TensorProto.FLOAT, None)])
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


@pytest.mark.parametrize("size", [5, "n"])
def test_an_error_names_the_node_that_was_given_the_index(size: int | str, tmp_path: Path) -> None:
    x, fine = np.ones((5, 4), np.float32), np.array([0, 1])
    shown = str(size) if size == 5 else f'"{size}"'
    for names in (("rows", "columns"), ("other rows", "other columns")):  # of one module
        exe = plica.compile(lookups(size, *names), threads=1)
        exe.save(tmp_path / "m.plica")
        for run in (exe, plica.load(tmp_path / "m.plica")):
            with pytest.raises(plica.PlicaError) as caught:
                run(x, np.array([0, 7]), np.array([0, 1, 2]))
            (said,) = caught.value.diagnostics
            assert said.place is not None
            assert said.place.node == names[0]
            assert said.expected == f"indices inside axis 0 of Tensor[({shown}, 4), f32]"
            with pytest.raises(plica.PlicaError, match=names[1]):
                run(x, fine, np.array([0, 1, 4]))


def test_an_index_far_outside_is_no_place_of_a_row() -> None:
    at = np.array([1, 2**32 + 1, -(2**32) + 1, -2, 2**40, -4], np.int64)
    of = one("OneHot", [at, np.array(3), np.array([0, 1], np.float32)], stored=2)
    wanted = np.zeros((6, 3), np.float32)
    wanted[[0, 3], 1] = 1
    assert np.array_equal(plica.compile(of, cache=False)(at), wanted)
