"""Quantised TFLite models: results are those of LiteRT but for one step of the result's scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")
pytest.importorskip("flatbuffers")

import plica
from tests.frontend.tflite.build import Builder, options
from tests.frontend.tflite.test_importer import reference

SAME, VALID = 0, 1
RELU, RELU6 = 1, 3
BOUNDS = {"int8": (-128, 127), "uint8": (0, 255)}


class Bytes(Builder):
    """A model of int8 or uint8 tensors, with weights of one scale or of one per channel."""

    def __init__(self, dtype: str, per_channel: bool) -> None:
        super().__init__()
        self.dtype, self.per_channel = dtype, per_channel

    def given(self, *shape: int, scale: float = 0.05) -> int:
        return self.scaled(self.input(*shape, dtype=self.dtype), scale, self.middle(3))

    def middle(self, offset: int = 0) -> int:
        """A zero point near the middle of the bounds."""
        return offset + (128 if self.dtype == "uint8" else 0)

    def filters(self, shape: tuple[int, ...], axis: int, x: int) -> list[int]:
        """Weights and their bias, for an input."""
        count = shape[axis]
        if self.dtype == "uint8":
            low, high, zero = 0, 255, 121
        else:
            low, high, zero = -127, 127, 0
        scale = self.draw.uniform(0.005, 0.02, count if self.per_channel else 1)
        w = self.constant(self.draw.integers(low, high + 1, shape), self.dtype)
        bias = self.constant(self.draw.integers(-900, 900, count), "int32")
        by = float(self.tensors[x].quantization.scale[0])
        return [self.scaled(w, scale, zero, axis), self.scaled(bias, scale * by)]

    def result(  # noqa: PLR0917  # what an operator is made of
        self, name: str, args: list[int], shape: tuple[int, ...], scale: float, zero: int = 0,
        how: Any = None,
    ) -> int:  # fmt: skip
        at = self.op(name, args, shape, options=how, dtype=self.dtype)
        return self.scaled(at, scale, self.middle(zero))


def convolution(b: Bytes) -> list[int]:
    x = b.given(2, 7, 7, 4)
    how = options("Conv2D", padding=SAME, strideH=2, strideW=2, dilationHFactor=1,
                  dilationWFactor=1, fusedActivationFunction=RELU)  # fmt: skip
    args = [x, *b.filters((8, 3, 3, 4), 0, x)]
    return [b.result("CONV_2D", args, (2, 4, 4, 8), 0.2, -40, how)]


def depthwise(b: Bytes) -> list[int]:
    x = b.given(1, 6, 6, 8)
    how = options("DepthwiseConv2D", padding=VALID, strideH=1, strideW=1, depthMultiplier=1,
                  dilationHFactor=1, dilationWFactor=1, fusedActivationFunction=RELU6)  # fmt: skip
    args = [x, *b.filters((1, 3, 3, 8), 3, x)]
    return [b.result("DEPTHWISE_CONV_2D", args, (1, 4, 4, 8), 0.03, -60, how)]


def dense(b: Bytes) -> list[int]:
    x, how = b.given(3, 32), options("FullyConnected")
    per_channel, b.per_channel = b.per_channel, False
    args = [x, *b.filters((10, 32), 0, x)]
    b.per_channel = per_channel
    return [b.result("FULLY_CONNECTED", args, (3, 10), 0.3, 5, how)]


def sums(b: Bytes) -> list[int]:
    x, y = b.given(2, 5, 6), b.given(2, 5, 6, scale=0.11)
    kinds = (("Add", 0.13, 0), ("Sub", 0.15, RELU), ("Mul", 0.3, 0))
    return [b.result(name.upper(), [x, y], (2, 5, 6), scale, -7,
                     options(name, fusedActivationFunction=act))
            for name, scale, act in kinds]  # fmt: skip


def pools(b: Bytes) -> list[int]:
    x = b.given(1, 8, 8, 3)
    how = options("Pool2D", padding=SAME, strideH=2, strideW=2, filterHeight=3, filterWidth=3)
    return [b.result(each, [x], (1, 4, 4, 3), 0.05, 3, how)
            for each in ("AVERAGE_POOL_2D", "MAX_POOL_2D")]  # fmt: skip


def functions(b: Bytes) -> list[int]:
    x = b.given(4, 9, scale=0.08)
    zero = 0 if b.dtype == "uint8" else -128
    kinds = (("LOGISTIC", None), ("SOFTMAX", options("Softmax", beta=1.0)))
    found = [b.scaled(b.op(each, [x], (4, 9), dtype=b.dtype, options=how), 1 / 256, zero)
             for each, how in kinds]  # fmt: skip
    tanh = b.result("TANH", [x], (4, 9), 1 / 128)
    relu = b.result("RELU", [x], (4, 9), 0.06, -20)
    leaky = b.result("LEAKY_RELU", [x], (4, 9), 0.05, 9, options("LeakyRelu", alpha=0.2))
    return [*found, tanh, relu, leaky]


def arranged(b: Bytes) -> list[int]:
    x = b.given(2, 3, 4)
    turned = b.result("TRANSPOSE", [x, b.constant([0, 2, 1])], (2, 4, 3), 0.05, 3)
    flat = b.result("RESHAPE", [turned, b.constant([2, 12])], (2, 12), 0.05, 3)
    wide = b.result("PAD", [flat, b.constant([[0, 0], [1, 2]])], (2, 15), 0.05, 3)
    both = b.result(
        "CONCATENATION", [wide, flat], (2, 27), 0.05, 3, options("Concatenation", axis=1)
    )
    return [both, b.result("GATHER", [flat, b.constant([5, 0, 5])], (2, 3), 0.05, 3,
                           options("Gather", axis=1))]  # fmt: skip


def means(b: Bytes) -> list[int]:
    x, how = b.given(2, 4, 4, 5), options("Reducer", keepDims=False)
    return [b.result("MEAN", [x, b.constant([1, 2])], (2, 5), 0.03, 8, how)]


def edges(b: Bytes) -> list[int]:
    """Floats in and out, integers between."""
    x = b.input(2, 16)
    q = b.result("QUANTIZE", [x], (2, 16), 0.04, 2)
    again = b.result("QUANTIZE", [q], (2, 16), 0.07, -3)
    return [q, b.op("DEQUANTIZE", [again], (2, 16))]


def network(b: Bytes) -> list[int]:
    x = b.given(1, 8, 8, 3)
    how = options("Conv2D", padding=SAME, strideH=2, strideW=2, dilationHFactor=1,
                  dilationWFactor=1, fusedActivationFunction=RELU)  # fmt: skip
    y = b.result("CONV_2D", [x, *b.filters((8, 3, 3, 3), 0, x)], (1, 4, 4, 8), 0.1, -100, how)
    how = options("DepthwiseConv2D", padding=SAME, strideH=1, strideW=1, depthMultiplier=1,
                  dilationHFactor=1, dilationWFactor=1)  # fmt: skip
    z = b.result(
        "DEPTHWISE_CONV_2D", [y, *b.filters((1, 3, 3, 8), 3, y)], (1, 4, 4, 8), 0.3, 0, how
    )
    z = b.result("ADD", [y, z], (1, 4, 4, 8), 0.35, -10, options("Add"))
    z = b.result("MEAN", [z, b.constant([1, 2])], (1, 8), 0.35, -10,
                 options("Reducer", keepDims=False))  # fmt: skip
    b.per_channel = False
    return [y, b.result("FULLY_CONNECTED", [z, *b.filters((6, 8), 0, z)], (1, 6), 0.4, 0,
                        options("FullyConnected"))]  # fmt: skip


MODELS: tuple[Callable[[Bytes], list[int]], ...] = (
    convolution, depthwise, dense, sums, pools, functions, arranged, means, edges, network,
)  # fmt: skip
WEIGHTED = (convolution, depthwise, network)
EXACT = (arranged,)
LAYERS = {"network": 3}
"""Layers whose steps add up."""
CASES = [("int8", False), ("uint8", False), ("int8", True)]


@pytest.mark.parametrize("make", MODELS, ids=lambda each: each.__name__)
@pytest.mark.parametrize(("dtype", "per_channel"), CASES)
def test_a_quantised_model_means_what_litert_computes(
    make: Callable[[Bytes], list[int]], dtype: str, per_channel: bool
) -> None:
    if per_channel and make not in WEIGHTED:
        pytest.skip("no weights per channel")
    b = Bytes(dtype, per_channel)
    data = b.file(*make(b))
    draw, low = np.random.default_rng(2), BOUNDS[dtype]
    arrays: list[Any] = []
    for at in b.inputs:
        shape = tuple(b.tensors[at].shape)
        arrays.append(draw.normal(0, 2, shape).astype(np.float32) if make is edges
                      else draw.integers(low[0], low[1] + 1, shape).astype(dtype))  # fmt: skip
    expected = reference(data, arrays)
    steps = 0 if make in EXACT else LAYERS.get(make.__name__, 1)
    module = plica.from_tflite(data)
    for run in (lambda *given: plica.interpret(module, *given), plica.compile(module)):
        found = run(*arrays)
        every = found if isinstance(found, tuple | list) else [found]
        for one, two in zip(every, expected, strict=True):
            array = np.asarray(one)
            assert array.dtype == two.dtype
            if array.dtype == np.float32:
                np.testing.assert_allclose(array, two, atol=0.07)
            else:
                distance = np.abs(array.astype(int) - two.astype(int))
                assert distance.max() <= steps
                assert len(np.unique(two)) > 3


def cast(b: Bytes) -> list[int]:
    return [b.op("CAST", [b.given(2, 3)], (2, 3), options=options("Cast"))]


def uneven(b: Bytes) -> list[int]:
    x = b.scaled(b.input(2, 3, dtype="int8"), [0.1, 0.2], 0, 1)
    return [b.result("RELU", [x], (2, 3), 0.1)]


@pytest.mark.parametrize(
    ("make", "message"), [(cast, "CAST of a quantised tensor"), (uneven, "is damaged")]
)
def test_refused(make: Callable[[Bytes], list[int]], message: str) -> None:
    b = Bytes("int8", False)
    with pytest.raises(plica.PlicaError, match=message):
        plica.from_tflite(b.file(*make(b)))
