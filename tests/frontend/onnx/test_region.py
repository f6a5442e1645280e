"""Rows of regions, caches and losses: what they refuse, and what onnxruntime says of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import plica
from plica.core.diagnostic import EvaluationError, Malformed
from plica.frontend.onnx import from_onnx
from plica.runtime.error import PlicaError, UnsupportedError
from tests.frontend.onnx.build import f32_like as f32, model

RANDOM = np.random.default_rng(5)


def one(kind: str, inputs: dict[str, Any], outputs: int = 1, **attrs: Any) -> onnx.ModelProto:
    names = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(kind, list(inputs), names, name="here", **attrs)
    return model([node], inputs, names, opset=24 if kind == "TensorScatter" else 21)


def numbers(*shape: int) -> Any:
    return RANDOM.uniform(-2, 2, shape).astype(np.float32)


IMAGE, WEIGHT, OFFSET = f32(1, 2, 3, 3), f32(1, 2, 1, 1), f32(1, 2, 3, 3)
REFUSED: dict[str, tuple[type[PlicaError], str, dict[str, Any], dict[str, Any]]] = {
    "offsets": (Malformed, "DeformConv", {"x": IMAGE, "w": WEIGHT, "o": f32(1, 3, 3, 3)}, {}),
    "samples": (
        UnsupportedError, "RoiAlign", {"x": IMAGE, "r": f32(2, 4), "b": np.zeros(2, np.int64)},
        {"mode": "max"},
    ),
    "mode": (
        Malformed, "RoiAlign", {"x": IMAGE, "r": f32(2, 4), "b": np.zeros(2, np.int64)},
        {"sampling_ratio": 1, "mode": "med"},
    ),
    "places": (
        Malformed, "MaxUnpool", {"x": IMAGE, "i": np.zeros((1, 2, 3, 2), np.int64)},
        {"kernel_shape": [2, 2]},
    ),
    "reduction": (
        Malformed, "NegativeLogLikelihoodLoss", {"x": f32(2, 3), "t": np.zeros(2, np.int64)},
        {"reduction": "most"},
    ),
    "update": (
        Malformed, "TensorScatter", {"c": f32(2, 4, 3), "u": f32(2, 1, 4)}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused(why: str) -> None:
    error, kind, inputs, attrs = REFUSED[why]
    with pytest.raises(error, match="here"):
        from_onnx(one(kind, inputs, **attrs))


@pytest.mark.parametrize("start", [-1, 3, 9])
def test_writing_past_the_end_of_a_cache_is_refused(start: int) -> None:
    given = {"c": f32(1, 4, 3), "u": f32(1, 2, 3), "i": np.array([start])}
    with pytest.raises(EvaluationError) as caught:
        plica.interpret(from_onnx(one("TensorScatter", given)), *given.values())
    assert caught.value.code == "index-out-of-bounds"


CASES: dict[str, tuple[str, dict[str, Any], int, dict[str, Any]]] = {
    "regions": (
        "RoiAlign",
        {"x": numbers(2, 3, 6, 7), "r": np.abs(numbers(3, 4)) * 2, "b": np.array([0, 1, 1])}, 1,
        {"sampling_ratio": 3, "output_height": 2, "output_width": 3, "spatial_scale": 0.7},
    ),
    "regions by pixels": (
        "RoiAlign",
        {
            "x": numbers(1, 3, 6, 7),
            "r": np.array([[0, 0, 6, 5], [1, 2, 1, 9], [-4, -9, 3, 2], [5, 4, 60, 70]], np.float32),
            "b": np.zeros(4, np.int64),
        }, 1, {"output_height": 2, "output_width": 3},
    ),
    "likelihood": (
        "NegativeLogLikelihoodLoss",
        {"x": numbers(4, 5, 3), "t": RANDOM.integers(0, 5, (4, 3)), "w": np.abs(numbers(5))}, 1,
        {"ignore_index": 2},
    ),
    "entropy": (
        "SoftmaxCrossEntropyLoss",
        {"x": numbers(4, 5, 3), "t": RANDOM.integers(0, 5, (4, 3)), "w": np.abs(numbers(5))}, 2,
        {"reduction": "none"},
    ),
    "unpool": (
        "MaxUnpool",
        {"x": numbers(1, 2, 2, 2), "i": RANDOM.permutation(32)[:8].reshape(1, 2, 2, 2)}, 1,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "greatest": (
        "TopK", {"x": numbers(3, 40), "k": np.array([7])}, 2, {"axis": 1, "largest": 1}
    ),
    "sequences": (
        "ReverseSequence", {"x": numbers(5, 3, 2), "l": np.array([1, 5, 3])}, 1,
        {"time_axis": 0, "batch_axis": 1},
    ),
    "sums": (
        "ScatterElements",
        {"x": numbers(6, 3), "i": RANDOM.integers(-6, 6, (9, 3)), "u": numbers(9, 3)}, 1,
        {"reduction": "add"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_onnxruntime_says(case: str) -> None:
    peer = pytest.importorskip("onnxruntime")
    kind, inputs, outputs, attrs = CASES[case]
    of = one(kind, inputs, outputs, **attrs)
    wanted = peer.InferenceSession(of.SerializeToString()).run(None, inputs)
    found = plica.compile(of)(**inputs)
    several = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(several, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
