# ruff: noqa: E501  # rows of a table
"""Operators whose meaning or form changed between versions, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.onnx.build import Array, agrees, one

RANDOM = np.random.default_rng(3)


def f32(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def i64(*values: int) -> Array:
    return np.asarray(values, np.int64)


ROIS = np.zeros(0, np.float32)
SCALES = np.asarray([1, 1, 2, 1.5], np.float32)

# fmt: off
CASES: dict[str, tuple[str, int, list[Any], int, dict[str, Any]]] = {
    "softmax-11":          ("Softmax",            11, [f32(2, 3, 4)], 0, {"axis": 1}),
    "softmax-11-default":  ("Softmax",            11, [f32(2, 3, 4)], 0, {}),
    "softmax-13":          ("Softmax",            13, [f32(2, 3, 4)], 0, {"axis": 1}),
    "log-softmax-11":      ("LogSoftmax",         11, [f32(2, 3, 4)], 0, {"axis": 2}),
    "hardmax-11":          ("Hardmax",            11, [f32(2, 3, 4)], 0, {"axis": 1}),
    "clip-6":              ("Clip",                7, [f32(5)],       0, {"min": -0.5, "max": 0.25}),
    "clip-11":             ("Clip",               12, [f32(5), np.float32(-0.5), np.float32(0.25)], 2, {}),
    "clip-13-dynamic":     ("Clip",               13, [f32(5), np.float32(-0.5), np.float32(0.25)], 0, {}),
    "reduce-sum-11":       ("ReduceSum",          11, [f32(2, 3, 4)], 0, {"axes": [0, -1], "keepdims": 0}),
    "reduce-sum-13":       ("ReduceSum",          13, [f32(2, 3, 4), i64(1)], 1, {}),
    "reduce-sum-noop":     ("ReduceSum",          13, [f32(2, 3)], 0, {"noop_with_empty_axes": 1}),
    "reduce-mean-17":      ("ReduceMean",         17, [f32(2, 3, 4)], 0, {"axes": [1]}),
    "reduce-mean-18":      ("ReduceMean",         18, [f32(2, 3, 4), i64(1, 2)], 1, {"keepdims": 0}),
    "squeeze-11":          ("Squeeze",            11, [f32(1, 3, 1)], 0, {"axes": [0]}),
    "squeeze-13":          ("Squeeze",            13, [f32(1, 3, 1), i64(-1)], 1, {}),
    "unsqueeze-11":        ("Unsqueeze",          11, [f32(3)], 0, {"axes": [0, 2]}),
    "unsqueeze-13":        ("Unsqueeze",          13, [f32(3), i64(0, -1)], 1, {}),
    "slice-9":             ("Slice",               9, [f32(4, 5)], 0, {"starts": [1, -3], "ends": [1000, -1], "axes": [0, 1]}),
    "slice-13":            ("Slice",              13, [f32(4, 5), i64(-1, 4), i64(-100, 0), i64(0, 1), i64(-1, -2)], 4, {}),
    "split-11":            ("Split",              11, [f32(5, 2)], 0, {"split": [2, 3]}),
    "pad-10":              ("Pad",                10, [f32(3, 4)], 0, {"pads": [1, 0, 0, 2], "value": 1.5}),
    "pad-18-axes":         ("Pad",                18, [f32(3, 4), i64(1, 2), np.float32(2.0), i64(1)], 3, {}),
    "pad-reflect":         ("Pad",                13, [f32(3, 4), i64(1, 2, 2, 3)], 1, {"mode": "reflect"}),
    "pad-negative":        ("Pad",                13, [f32(3, 4), i64(-1, 2, 0, -1)], 1, {}),
    "upsample-9":          ("Upsample",            9, [f32(1, 2, 3, 4), SCALES], 1, {"mode": "nearest"}),
    "upsample-7-linear":   ("Upsample",            7, [f32(1, 2, 3, 4)], 0, {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}),
    "resize-10":           ("Resize",             10, [f32(1, 2, 3, 4), SCALES], 1, {"mode": "nearest"}),
    "resize-11-linear":    ("Resize",             11, [f32(1, 2, 3, 4), ROIS, SCALES], 2, {"mode": "linear"}),
    "resize-13-cubic":     ("Resize",             13, [f32(1, 2, 5, 4), ROIS, SCALES], 2, {"mode": "cubic"}),
    "batch-norm-7":        ("BatchNormalization",  7, [f32(2, 3, 4), f32(3), f32(3), f32(3), abs(f32(3))], 4, {}),
    "batch-norm-15":       ("BatchNormalization", 15, [f32(2, 3, 4), f32(3), f32(3), f32(3), abs(f32(3))], 4, {"epsilon": 0.1}),
    "dropout-7":           ("Dropout",             7, [f32(4)], 0, {"ratio": 0.3}),
    "dropout-12":          ("Dropout",            12, [f32(4)], 0, {}),
    "gemm-7":              ("Gemm",                7, [f32(3, 2), f32(3, 4), f32(4)], 1, {"alpha": 0.5, "beta": 2.0, "transA": 1}),
    "gemm-13-transposed":  ("Gemm",               13, [f32(2, 3), f32(4, 3)], 1, {"transB": 1}),
    "div-integers":        ("Div",                14, [i64(-7, 7, -7), i64(2, -2, -2)], 0, {}),
    "mod-negative":        ("Mod",                13, [i64(-7, 7), i64(3, -3)], 0, {}),
    "mod-fmod":            ("Mod",                13, [i64(-7, 7), i64(3, -3)], 0, {"fmod": 1}),
    "pow-mixed":           ("Pow",                15, [f32(3) ** 2, i64(2, 3, -1)], 0, {}),
    "top-k-10":            ("TopK",               10, [f32(3, 6), i64(2)], 1, {"axis": 1}),
    "conv-same":           ("Conv",               11, [f32(1, 2, 7, 6), f32(3, 2, 3, 2)], 1, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "conv-same-lower":     ("Conv",               11, [f32(1, 2, 7, 6), f32(3, 2, 4, 2)], 1, {"auto_pad": "SAME_LOWER"}),
    "conv-transpose":      ("ConvTranspose",      11, [f32(1, 2, 3, 3), f32(2, 2, 3, 3)], 1, {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 0, 1]}),
    "conv-transpose-out":  ("ConvTranspose",      11, [f32(1, 2, 3, 3), f32(2, 2, 3, 3)], 1, {"strides": [3, 2], "output_shape": [10, 8]}),
    "max-pool-ceil":       ("MaxPool",            12, [f32(1, 2, 7, 6)], 0, {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    "max-pool-hanging":    ("MaxPool",            12, [f32(1, 2, 1, 2)], 0, {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    "avg-pool-hanging":    ("AveragePool",        19, [f32(1, 2, 1, 2)], 0, {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    "average-pool-pads":   ("AveragePool",        11, [f32(1, 2, 7, 6)], 0, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    "lp-pool":             ("LpPool",             11, [f32(1, 2, 6, 6)], 0, {"kernel_shape": [2, 2], "p": 3}),
    "group-norm-21":       ("GroupNormalization", 21, [f32(2, 4, 3), f32(4), f32(4)], 2, {"num_groups": 2}),
    "arg-max-12":          ("ArgMax",             12, [f32(3, 4)], 0, {"axis": 1, "keepdims": 0}),
    "cum-sum":             ("CumSum",             14, [f32(3, 4), i64(1)[0]], 1, {"exclusive": 1, "reverse": 1}),
    "scatter-elements":    ("ScatterElements",    16, [f32(4, 3), np.array([[1, -1, 2]]), f32(1, 3)], 0, {"reduction": "add"}),
    "scatter-nd":          ("ScatterND",          16, [f32(4, 3), np.array([[1], [-1]]), f32(2, 3)], 0, {}),
    "quantize":            ("QuantizeLinear",     13, [f32(2, 6) * 200, np.float32(1.5), np.uint8(7)], 2, {}),
    "dequantize-axis":     ("DequantizeLinear",   13, [np.arange(6, dtype=np.int8).reshape(2, 3), abs(f32(2)), np.array([1, -2], np.int8)], 2, {"axis": 0}),
    "einsum-dots":         ("Einsum",             12, [f32(2, 3, 4), f32(2, 4, 5)], 0, {"equation": "...ij,...jk->...ik"}),
    "einsum-implicit":     ("Einsum",             12, [f32(3, 4), f32(4, 5)], 0, {"equation": "ab,bc"}),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_a_version_is_what_onnxruntime_says(name: str) -> None:
    kind, opset, arrays, stored, attrs = CASES[name]
    arrays = [np.asarray(each) for each in arrays]
    outputs = 2 if kind in ("Split", "TopK") else 1
    made = one(kind, arrays, opset, outputs, stored, **attrs)
    given = {f"x{at}": each for at, each in enumerate(arrays[: len(arrays) - stored])}
    agrees(made, given)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_network_is_what_onnxruntime_says(
    kind: str, gates: int, direction: str
) -> None:
    ways, hidden = 2 if direction == "bidirectional" else 1, 3
    lengths = np.asarray([4, 2], np.int32)
    arrays = [
        f32(4, 2, 5), f32(ways, gates * hidden, 5), f32(ways, gates * hidden, hidden),
        f32(ways, 2 * gates * hidden), lengths, f32(ways, 2, hidden),
    ]  # fmt: skip
    more = {"linear_before_reset": 1} if kind == "GRU" and ways == 1 else {}
    outputs = 3 if kind == "LSTM" else 2
    made = one(kind, arrays, 14, outputs, 0, hidden_size=hidden, direction=direction, **more)
    agrees(made, {f"x{at}": each for at, each in enumerate(arrays)})
