# ruff: noqa: E501  # rows of a table
"""What onnxruntime's optimiser and quantiser write (`com.microsoft`): the same as onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import plica
from plica.core.diagnostic import Malformed
from plica.runtime.error import UnsupportedError

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(5)


def f32(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Array:
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def scale(value: float = 0.02) -> Array:
    return np.array(value, np.float32)


def model(
    op: str, inputs: list[Array | None], known: int, outputs: int = 1, **attributes: Any
) -> tuple[onnx.ModelProto, list[Array]]:
    """One node; the last of its inputs from a place on are constants."""
    names = [f"i{at}" if each is not None else "" for at, each in enumerate(inputs)]
    domain = attributes.pop("domain", "com.microsoft")
    results = [f"o{at}" for at in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = [(name, each) for name, each in zip(names[:known], inputs, strict=False) if name]
    fixed = [(name, each) for name, each in zip(names[known:], inputs[known:], strict=True) if name]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given if each is not None
    ]  # fmt: skip
    outs = [helper.make_empty_tensor_value_info(each) for each in results]
    stored = [numpy_helper.from_array(each, name) for name, each in fixed if each is not None]
    graph = helper.make_graph([node], "g", infos, outs, stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return made, [each for _, each in given if each is not None]


B, S, H, N = 2, 5, 12, 3
Q = [u8(2, 3, 4, 4), scale(), np.uint8(120)]
# fmt: off
CASES: dict[str, tuple[str, list[Any], int, int, dict[str, Any]]] = {
    "gelu":        ("Gelu", [f32(3, 4)], 1, 1, {}),
    "bias-gelu":   ("BiasGelu", [f32(3, 4), f32(4)], 1, 1, {}),
    "fast-gelu":   ("FastGelu", [f32(3, 4), f32(4)], 1, 1, {}),
    "quick-gelu":  ("QuickGelu", [f32(3, 4)], 1, 1, {"alpha": 1.5}),
    "matmul":      ("FusedMatMul", [f32(2, 4, 3), f32(2, 5, 4)], 2, 1, {"transA": 1, "transB": 1, "alpha": 0.5}),
    "gemm":        ("FusedGemm", [f32(3, 4), f32(4, 5), f32(5)], 1, 1, {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    "conv":        ("FusedConv", [f32(1, 3, 6, 6), f32(4, 3, 3, 3), f32(4)], 1, 1, {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    "conv-add":    ("FusedConv", [f32(1, 3, 6, 6), f32(4, 3, 3, 3), f32(4), f32(1, 4, 4, 4)], 1, 1, {"activation": "Relu"}),
    "skip-norm":   ("SkipLayerNormalization", [f32(B, S, H), f32(B, S, H), f32(H), f32(H), f32(H)], 2, 1, {"epsilon": 1e-5}),
    "skip-sum":    ("SkipLayerNormalization", [f32(B, S, H), f32(B, S, H), f32(H), f32(H)], 2, 1, {}),
    "skip-rms":    ("SkipSimplifiedLayerNormalization", [f32(B, S, H), f32(B, S, H), f32(H)], 2, 1, {"epsilon": 1e-6}),
    "rms":         ("SimplifiedLayerNormalization", [f32(B, S, H), f32(H)], 1, 1, {"domain": "", "epsilon": 1e-6}),
    "embed":       ("EmbedLayerNormalization", [np.array([[1, 2, 0], [3, 3, 1]], "i4"), np.array([[0, 1, 1], [0, 0, 1]], "i4"), f32(7, 8), f32(9, 8), f32(2, 8), f32(8), f32(8), np.array([[1, 1, 0], [1, 0, 0]], "i4")], 2, 2, {"epsilon": 1e-5}),
    "attention":   ("Attention", [f32(B, S, H), f32(H, 3 * H), f32(3 * H)], 1, 1, {"num_heads": N}),
    "att-causal":  ("Attention", [f32(B, S, H), f32(H, 3 * H), f32(3 * H)], 1, 1, {"num_heads": N, "unidirectional": 1}),
    "att-mask":    ("Attention", [f32(B, S, H), f32(H, 3 * H), f32(3 * H), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")], 1, 1, {"num_heads": N}),
    "att-length":  ("Attention", [f32(B, S, H), f32(H, 3 * H), f32(3 * H), np.array([3, 5], "i4")], 1, 1, {"num_heads": N}),
    "heads":       ("MultiHeadAttention", [f32(B, 4, H), f32(B, S, H), f32(B, S, H), f32(3 * H)], 3, 1, {"num_heads": N}),
    "heads-bias":  ("MultiHeadAttention", [f32(B, 4, H), f32(B, S, H), f32(B, S, H), None, None, f32(1, N, 4, S)], 3, 1, {"num_heads": N, "scale": 0.3}),
    "q-add":       ("QLinearAdd", [*Q, u8(2, 3, 4, 4), scale(0.05), np.uint8(7), scale(0.06), np.uint8(100)], 1, 1, {}),
    "q-mul":       ("QLinearMul", [*Q, u8(2, 3, 4, 4), scale(0.05), np.uint8(7), scale(0.1), np.uint8(100)], 1, 1, {}),
    "q-sigmoid":   ("QLinearSigmoid", [*Q, scale(1 / 256), np.uint8(0)], 1, 1, {}),
    "q-leaky":     ("QLinearLeakyRelu", [*Q, scale(0.02), np.uint8(60)], 1, 1, {"alpha": 0.1}),
    "q-pool":      ("QLinearGlobalAveragePool", [*Q, scale(0.01), np.uint8(128)], 1, 1, {}),
    "q-softmax":   ("QLinearSoftmax", [u8(3, 10), scale(0.1), np.uint8(10), scale(1 / 256), np.uint8(0)], 1, 1, {"axis": -1, "opset": 13}),
    "q-concat":    ("QLinearConcat", [scale(0.03), np.uint8(90), *Q, u8(2, 2, 4, 4), scale(0.05), np.uint8(7)], 0, 1, {"axis": 1}),
    "dynamic":     ("DynamicQuantizeMatMul", [f32(3, 8), i8(8, 5) // 2, np.abs(f32(5)), i8(5), f32(5)], 1, 1, {}),
    "to-float":    ("MatMulIntegerToFloat", [u8(3, 8), i8(8, 5) // 2, scale(), np.abs(f32(5)), np.uint8(120), i8(5), f32(5)], 1, 1, {}),
    "lstm":        ("DynamicQuantizeLSTM", [f32(4, 2, 6), i8(2, 6, 20) // 2, i8(2, 5, 20) // 2, f32(2, 40), None, None, None, None, np.array([.01, .02], "f4"), np.array([3, -2], "i1"), np.array([.01, .015], "f4"), np.array([0, 5], "i1")], 1, 3, {"hidden_size": 5, "direction": "bidirectional"}),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    op, inputs, known, outputs, attributes = CASES[name]
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    if name == "q-concat":
        known = 3
    made, given = model(op, arrays, known or len(arrays), outputs, **attributes)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, rows are quantised in parts
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    feed = {each.name: value for each, value in zip(session.get_inputs(), given, strict=True)}
    wanted = session.run(None, feed)
    found = plica.compile(made, threads=1, cache=False)(**feed)
    for mine, other in zip(found if outputs > 1 else (found,), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        if other.dtype.kind in "iu":
            assert np.abs(mine.astype(int) - other.astype(int)).max() <= 1  # a tie of roundings
        else:
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=2e-5 * np.abs(other).max())


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("FusedConv", [f32(1, 2, 4, 4), f32(2, 2, 1, 1)], {"activation": "Mish"}),
        ("FusedMatMul", [f32(2, 3, 4), f32(2, 4, 3)], {"transBatchA": 1}),
        ("Attention", [f32(B, S, H), f32(H, 3 * H), f32(3 * H), None, f32(2, B, N, 2, 4)], {"num_heads": N}),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_said(op: str, inputs: Any, attributes: dict[str, Any]) -> None:
    made, _ = model(op, inputs, 1, **attributes)
    with pytest.raises(UnsupportedError):
        plica.compile(made, cache=False)


@pytest.mark.parametrize("count", [0, -1, 5])
def test_heads_that_do_not_share_the_channels_are_refused(count: int) -> None:
    inputs: Any = [f32(B, S, H), f32(H, 3 * H), f32(3 * H)]
    made, _ = model("Attention", inputs, 1, num_heads=count)
    with pytest.raises(Malformed, match="share the channels"):
        plica.compile(made, cache=False)
