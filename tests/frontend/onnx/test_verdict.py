# ruff: noqa: E501  # rows of a table
"""Corners that onnxruntime, the reference and the standard see differently: what Plica gives.

The page docs/onnx.md has a row for each, with what the others give and why.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from onnx import NodeProto, helper

import plica
from tests.frontend.onnx.build import model

Array = np.ndarray[Any, Any]
node = helper.make_node
I4, NAN, INF = "int32", float("nan"), float("inf")
LOW: Final = -(2**31)
EMPTY: Final = np.zeros((2, 0), np.float32)
AXIS: Final = {"ax": np.array([1])}


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def _reduced(kind: str, of: str, wanted: float) -> tuple[str, Any]:
    nodes = [node(kind, ["x", "ax"], ["y"], keepdims=0)]
    return f"{kind} of nothing, {of}", (nodes, EMPTY.astype(of), AXIS, [wanted, wanted])


def _cast(to: str, wanted: list[int]) -> tuple[str, Any]:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    x = f32(300, -1.9, -129, 1e10, -1e10, NAN, INF, -INF)
    return f"Cast to {to}", ([node("Cast", ["x"], ["y"], to=number)], x, {}, wanted)


def _resize(coordinates: str) -> NodeProto:
    inputs = ["x", "roi", "s"]
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    return node("Resize", inputs, ["y"], **how)


_WITH_NAN: Final = f32(1, NAN, 3, 2, NAN, 0)
_NORM: Final = [node("MeanVarianceNormalization", ["x"], ["y"])]
_POW: Final = [node("Pow", ["x", "e"], ["y"])]
_ROWS: Final = np.array([[1, 2, 3], [-500, -500, -500]], I4)
_QUANTISED: Final = [node("QuantizeLinear", ["x", "s", "z"], ["y"])]

# Nodes, x, constants, and the elements of the result; None where the call is refused.
CASES: Final[dict[str, tuple[list[NodeProto], Array, dict[str, Array], list[Any] | None]]] = dict([
    _reduced("ReduceMean", "float32", NAN), _reduced("ReduceMean", I4, 0),
    _reduced("ReduceSum", "float32", 0), _reduced("ReduceProd", "float32", 1),
    _reduced("ReduceMax", "float32", -INF), _reduced("ReduceMin", "float32", INF),
    _reduced("ReduceMax", I4, LOW), _reduced("ReduceLogSumExp", "float32", -INF),
    _reduced("ReduceLogSumExp", I4, LOW),
    ("MVN of one element", (_NORM, f32(1, 2).reshape(1, 2, 1, 1), {}, [0, 0])),
    ("MVN of equal elements", (_NORM, np.full((1, 1, 2, 2), 3, np.float32), {}, [0, 0, 0, 0])),
    ("MVN of nothing", (_NORM, np.zeros((1, 2, 0, 2), np.float32), {}, [])),
    ("ArgMin of nothing", ([node("ArgMin", ["x"], ["y"], axis=1)], EMPTY, {}, None)),
    ("ArgMax of nothing", ([node("ArgMax", ["x"], ["y"], axis=1)], EMPTY, {}, None)),
    ("ArgMin of no rows", ([node("ArgMin", ["x"], ["y"], axis=1)], EMPTY.T, {}, [])),
    ("GlobalAveragePool of nothing", ([node("GlobalAveragePool", ["x"], ["y"])], np.zeros((1, 2, 0), np.float32), {}, None)),
    _cast("uint8", [255, 0, 0, 255, 0, 0, 255, 0]),
    _cast("int8", [127, -1, -128, 127, -128, 0, 127, -128]),
    _cast("int16", [300, -1, -129, 32767, -32768, 0, 32767, -32768]),
    _cast(I4, [300, -1, -129, 2**31 - 1, LOW, 0, 2**31 - 1, LOW]),
    ("Cast of integers", ([node("Cast", ["x"], ["y"], to=3)], np.array([300, -129, 128]), {}, [44, 127, -128])),
    ("QuantizeLinear of ties", (_QUANTISED, f32(0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 1e9, -1e9),
                                {"s": np.array(1, np.float32), "z": np.array(1, np.int8)}, [1, 3, 3, 1, -1, 127, 127, -128])),
    ("QuantizeLinear of no numbers", (_QUANTISED, f32(INF, -INF), {"s": np.array(1, np.float32), "z": np.array(1, np.int8)}, [127, -128])),
    ("ReduceLogSumExp of integers", ([node("ReduceLogSumExp", ["x", "ax"], ["y"])], _ROWS, AXIS, [3, -498])),
    ("ReduceL2 of integers", ([node("ReduceL2", ["x", "ax"], ["y"])], np.array([[1, 2, 3], [5, 5, 5]], I4), AXIS, [3, 8])),
    ("ReduceMean of integers", ([node("ReduceMean", ["x", "ax"], ["y"])], np.array([[1, 2, 4], [-1, -1, -3]], I4), AXIS, [2, -1])),
    ("Pow beyond the type", (_POW, np.array([10, 3, -3], I4), {"e": np.array([20, 41, 41], I4)}, [1661992960, 2069870691, -2069870691])),
    ("a negative Pow", (_POW, np.array([2, -2, 1, -1, -1, 0, 2**31 - 1], I4), {"e": np.array([-1, -1, -3, -3, -4, -1, -2], I4)}, [0, 0, 1, -1, 1, 0, 0])),
    ("a negative Pow, wider", (_POW, np.array([2, 1, -1, -1], I4), {"e": np.array([-1, -3, -3, 2**33])}, [0, 1, -1, 1])),
    ("a fractional Pow", (_POW, np.array([2, 4, -4, 9], I4), {"e": f32(0.5, 0.5, 0.5, -0.5)}, [1, 2, 0, 0])),
    ("Unique with nan", ([node("Unique", ["x"], ["y"])], f32(3, 1, NAN, 3, NAN), {}, [1, 3, NAN])),
    ("Unique in order", ([node("Unique", ["x"], ["y"], sorted=0)], f32(3, 1, NAN, 3, NAN), {}, [3, 1, NAN])),
    ("a long Compress", ([node("Compress", ["x", "c"], ["y"], axis=0)], f32(1, 2), {"c": np.array([True, False, True, True])}, [1])),
    ("a long Compress of all", ([node("Compress", ["x", "c"], ["y"])], np.ones((2, 1), np.float32), {"c": np.array([True, False, True, True])}, [1])),
    ("ReduceMean beyond the type", ([node("ReduceMean", ["x", "ax"], ["y"])], np.array([[2**31 - 1, 2**31 - 1, 5], [LOW, LOW, -5]], I4), AXIS, [1, -1])),
    ("ReduceSum beyond the type", ([node("ReduceSum", ["x", "ax"], ["y"])], np.array([[2**31 - 1, 2**31 - 1, 5], [LOW, LOW, -5]], I4), AXIS, [3, -5])),
    ("TopK with nan", ([node("TopK", ["x", "k"], ["v", "y"])], _WITH_NAN, {"k": np.array([3])}, [1, 4, 2])),
    ("TopK with nan, the least", ([node("TopK", ["x", "k"], ["v", "y"], largest=0)], _WITH_NAN, {"k": np.array([5])}, [5, 0, 3, 2, 1])),
    *[(f"{kind} with nan, last {last}", ([node(kind, ["x"], ["y"], select_last_index=last)], _WITH_NAN, {}, [4 if last else 1]))
      for kind in ("ArgMax", "ArgMin") for last in (0, 1)],
    *[(f"{kind} with nan", ([node(kind, ["x"], ["y"])], _WITH_NAN, {}, [NAN])) for kind in ("ReduceMax", "ReduceMin")],
    ("Resize by a fraction, corners", ([_resize("align_corners")], f32(0, 1, 2, 3), {"roi": f32(), "s": f32(0.625)}, [0, 2])),
    ("Resize by a fraction, to one", ([_resize("pytorch_half_pixel")], f32(0, 1, 2, 3, 4, 5), {"roi": f32(), "s": f32(0.25)}, [1.5])),
    ("Pow, Unique, Compress", ([node("Pow", ["x", "x"], ["p"]), node("Unique", ["p"], ["u"]), node("Greater", ["u", "k"], ["b"]),
                                node("Compress", ["u", "b"], ["y"], axis=0)], f32(1, 2, 2, -1, 0.5, -0.5), {"k": np.array(1, np.float32)}, [4])),
])  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_corner_is_what_the_page_says(case: str, is_open: bool) -> None:
    nodes, x, stored, wanted = CASES[case]
    shape = [f"n{axis}" for axis in range(x.ndim)] if is_open else x.shape
    made = model(nodes, {"x": (str(x.dtype), shape)}, ["y"], stored)
    if wanted is None:
        with pytest.raises(plica.PlicaError):
            plica.compile(made, cache=False)(x)
    else:
        found = plica.compile(made, cache=False)(x)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found.reshape(-1), np.array(wanted, found.dtype))
