"""Numbers that come when a model runs and that no operator takes: each is refused, never guessed.

The same executable takes numbers that are lawful and gives what onnxruntime gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import plica
from plica.runtime.error import EvaluationError, InputError
from tests.frontend.onnx.build import runtime

Array = np.ndarray[Any, Any]
X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGE: Final = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
SCALARS: Final = {"Range", "CumSum"}


def reals(*values: float) -> Array:
    return np.asarray(values, np.float32)


def model(kind: str, given: list[Array | None], attributes: dict[str, Any]) -> ModelProto:
    """One node, all of whose inputs come when it runs."""
    names = ["" if each is None else f"i{at}" for at, each in enumerate(given)]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, given, strict=True)
        if each is not None
    ]
    first = next(each for each in given if each is not None)
    of = helper.np_dtype_to_tensor_dtype(first.dtype)
    out = helper.make_tensor_value_info("y", of, None)
    node = helper.make_node(kind, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", ports, [out])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    return made


Lists = list[list[int]]
# A kind, what comes before the integers, integers that it takes, others, attributes.
INTEGERS: Final[list[tuple[str, list[Array], Lists, list[Lists], dict[str, Any]]]] = [
    ("Slice", [X], [[0], [3], [-2], [2]],
     [[[0], [3], [0], [0]], [[0], [3], [5], [1]], [[0], [3], [-3], [1]]], {}),
    ("Slice", [X], [[0, 1], [2, 3], [-1, 0], [1, 1]], [[[0, 0], [2, 1], [0, 0], [1, 1]]], {}),
    ("Range", [], [[5], [0], [-2]], [[[0], [3], [0]]], {}),
    ("ReduceSum", [X], [[-1]], [[[7]], [[-3]]], {}),
    ("ReduceSum", [X], [[1, 0]], [[[1, 1]], [[1, -1]]], {"keepdims": 0}),
    ("CumSum", [X], [[-2]], [[[5]]], {}),
    ("Unsqueeze", [X], [[3, 0]], [[[0, 0]], [[0, 4]]], {}),
    ("Squeeze", [X[:1, :1]], [[0, 1]], [[[0, 0]], [[0, 7]]], {}),
    ("Expand", [X], [[1, 4]], [[[3, 5]], [[-1, 4]], [[0, 4]]], {}),
    ("Expand", [X[:, :1]], [[2, 1, 3]], [[[2, 2, 3]]], {}),
    ("Pad", [X], [[2, 0, 1, 3]], [[[5, 0, 0, 0]], [[0, 0, 0, 4]]], {"mode": "reflect"}),
]  # fmt: skip


def cases() -> list[Any]:
    found: list[tuple[str, Sequence[Array | None], Sequence[Sequence[Array | None]], Any]] = []
    for kind, before, good, bad, attributes in INTEGERS:

        def fed(lists: Lists, before: list[Array] = before, kind: str = kind) -> list[Array | None]:
            form = () if kind in SCALARS else (-1,)
            return [*before, *(np.asarray(each, np.int64).reshape(form) for each in lists)]

        found.append((kind, fed(good), [fed(each) for each in bad], attributes))
    nan, inf = float("nan"), float("inf")
    ends = [(0, 3, 0), (0, nan, 1), (nan, 3, 1), (0, inf, 1), (0, 3, inf), (0, 3, nan)]
    wrong = [[np.asarray(each, np.float32) for each in some] for some in ends]
    right = [np.asarray(each, np.float32) for each in (0, 3, 0.75)]
    found.append(("Range", right, wrong, {}))
    scales = [[IMAGE, None, reals(1, 1, each, 1)] for each in (0, -1, nan, inf)]
    found.append(("Resize", [IMAGE, None, reals(1, 1, 2, 1)], scales, {"mode": "nearest"}))
    return [pytest.param(*each, id=f"{at}-{each[0]}") for at, each in enumerate(found)]


@pytest.mark.parametrize(("kind", "good", "bad", "attributes"), cases())
def test_numbers_that_an_operator_does_not_take_are_refused_when_they_come(
    kind: str, good: list[Array | None], bad: list[list[Array | None]], attributes: dict[str, Any]
) -> None:
    made = model(kind, good, attributes)
    run, read = plica.compile(made), plica.from_onnx(made)
    feed = {f"i{at}": each for at, each in enumerate(good) if each is not None}
    (expected,) = runtime(made, feed)
    np.testing.assert_allclose(np.asarray(run(*feed.values())), expected, rtol=1e-6)
    for some in bad:
        given = [each for each in some if each is not None]
        for way in (run, lambda *a: plica.interpret(read, *a)):
            with pytest.raises((EvaluationError, InputError)) as refused:
                way(*given)
            first = refused.value.diagnostics[0]
            assert first.code in {"input-shape", "input-value", "shape-conflict"}
            assert first.expected
            assert first.found


@pytest.mark.parametrize("rows", [3, "m"])
def test_expand_to_the_shape_of_another_is_refused_where_it_is_not_made(rows: int | str) -> None:
    of = TensorProto.FLOAT
    ports = [
        helper.make_tensor_value_info(*each) for each in (("x", of, [rows, 4]), ("o", of, ["n", 4]))
    ]
    nodes = [helper.make_node("Shape", ["o"], ["s"]), helper.make_node("Expand", ["x", "s"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", of, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    run, read = plica.compile(made), plica.from_onnx(made)
    for count in (1, 3):
        np.testing.assert_array_equal(np.asarray(run(X, np.zeros((count, 4), np.float32))), X)
    with pytest.raises(InputError, match="n is 5"):
        run(X, np.zeros((5, 4), np.float32))
    with pytest.raises(EvaluationError, match="less than it must be"):
        plica.interpret(read, X, np.zeros((5, 4), np.float32))


def test_lengths_of_sequences_are_within_them() -> None:
    x = np.ones((5, 2, 3), np.float32)
    weights = [np.ones((1, 16, size), np.float32) / 8 for size in (3, 4)]
    ports: list[Any] = [
        ("x", TensorProto.FLOAT, ["steps", 2, 3]), ("lengths", TensorProto.INT32, [2]),
    ]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "", "lengths"], ["y"], hidden_size=4)],
        "g",
        [helper.make_tensor_value_info(*each) for each in ports],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(each, name) for each, name in zip(weights, "wr", strict=True)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe = plica.compile(made, cache=False, threads=1)
    for lengths in ([5, 0], [2, 4]):
        given = {"x": x, "lengths": np.array(lengths, np.int32)}
        np.testing.assert_allclose(exe(**given), runtime(made, given)[0], rtol=1e-5)
    for lengths in ([6, 2], [2, -1]):
        with pytest.raises(EvaluationError, match="outside"):
            exe(x, np.array(lengths, np.int32))


def test_what_sizes_must_be_is_said() -> None:
    ports: list[Any] = [("x", TensorProto.FLOAT, ["n"]), ("k", TensorProto.INT64, [1])]
    outputs: list[Any] = [("v", TensorProto.FLOAT, None), ("i", TensorProto.INT64, None)]
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"])
    infos = [[helper.make_tensor_value_info(*each) for each in some] for some in (ports, outputs)]
    graph = helper.make_graph([node], "g", infos[0], infos[1])
    exe = plica.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    )
    with pytest.raises(InputError) as refused:
        exe(X[0], np.array([9]))
    (said,) = refused.value.diagnostics
    assert said.expected == "n >= the k of 'v'"
    assert said.found == "n is 4 (axis 0 of 'x'), the k of 'v' is 9 (from 'k')"


def test_a_size_that_two_inputs_decide_is_told_with_them() -> None:
    ports: list[Any] = [("x", TensorProto.FLOAT, ["n"]), ("z", TensorProto.FLOAT, ["w_"])]
    infos = [helper.make_tensor_value_info(*each) for each in ports]
    node = helper.make_node("Add", ["x", "z"], ["y"])
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe: Any = plica.compile(made, cache=False, threads=1)
    assert exe(X[0], X[0, :1]).shape == exe(X[0, :1], X[0]).shape == (4,)
    with pytest.raises(InputError) as refused:
        exe(X[0], X[0, :3])
    (said,) = refused.value.diagnostics
    assert said.found == "n is 4 (axis 0 of 'x'), w_ is 3 (axis 0 of 'z'), y is 4 (from 'x', 'z')"


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_nothing_is_resized_to_nothing_alone(mode: str) -> None:
    sizes = [np.array([1, 1, *each]) for each in ((2, 3), (0, 3), (0, 0))]
    of = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "h", "w"])
    late = helper.make_tensor_value_info("sizes", TensorProto.INT64, [4])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)
    graph = helper.make_graph([node], "g", [of, late], [out])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe: Any = plica.compile(made, cache=False, threads=1)
    for each in sizes:
        assert exe(IMAGE, each).shape == tuple(each)
    assert exe(IMAGE[:, :, :0], sizes[1]).shape == (1, 1, 0, 3)
    with pytest.raises(InputError) as refused:
        exe(IMAGE[:, :, :0], sizes[0])
    assert "h is 0 (axis 2 of 'x')" in str(refused.value)
    assert "(from 'sizes')" in str(refused.value)
