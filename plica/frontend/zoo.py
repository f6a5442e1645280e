"""The zoo: well-known networks as modules of the graph language, with random weights.

They serve demonstrations, benchmarks and tests: real shapes, no files.  `width` scales the numbers
of channels; weights follow from `seed`.

>>> small = resnet(18, image=32, width=0.125, classes=10)
>>> [str(size.value) for size in small.main_function().params[0].type.shape]
['1', '3', '32', '32']
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core.name import Name
from plica.ir.graph import Expr, Function, Var, const
from plica.ir.infer import infer, type_of
from plica.ir.module import Module, module
from plica.ir.op import find
from plica.ir.type import TensorType, tensor

# How many blocks each stage has, and whether they are bottlenecks (He et al., 2015).
RESNETS: Final[dict[int, tuple[tuple[int, ...], bool]]] = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
}
# Expansion, channels, blocks, stride of each stage of MobileNetV2 (Sandler et al., 2018).
MOBILENET: Final = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def _op(name: str, *args: Expr, **attributes: Any) -> Expr:
    found = find(name)
    assert found is not None, name
    made: Expr = found(*args, **attributes)
    return made


class _Layers:
    """Layers with random weights, drawn in the order they are asked for."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int) -> Expr:
        fan_in = int(np.prod(shape[1:])) or 1
        values = self.random.standard_normal(shape, np.float32) * np.sqrt(2.0 / fan_in)
        return const(values.astype(np.float32))

    def vector(self, size: int, low: float, high: float) -> Expr:
        return const(self.random.uniform(low, high, size).astype(np.float32))

    def conv(self, x: Expr, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
        """A convolution and its batch normalisation."""
        channels = _channels(x)
        weight = self.weight(out, channels // groups, kernel, kernel)
        y = _op("nn.conv", x, weight, strides=stride, padding=kernel // 2, groups=groups)
        gamma, beta = self.vector(out, 0.5, 1.5), self.vector(out, -0.1, 0.1)
        mean, variance = self.vector(out, -0.1, 0.1), self.vector(out, 0.5, 1.5)
        return _op("nn.batch_norm", y, gamma, beta, mean, variance)

    def dense(self, x: Expr, out: int) -> Expr:
        y = _op("nn.dense", x, self.weight(out, _channels(x)))
        return _op("add", y, self.vector(out, -0.1, 0.1))


def resnet(
    depth: int = 18,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """A residual network for classification, before softmax."""
    if depth not in RESNETS:
        raise ValueError(f"There is no ResNet-{depth}; known: {', '.join(map(str, RESNETS))}.")
    blocks, bottleneck = RESNETS[depth]
    layers = _Layers(seed)
    x = Var(Name("x"), tensor((batch, 3, image, image), "f32"))
    y = _op("nn.relu", layers.conv(x, _scaled(64, width), 7, 2))
    y = _op("nn.max_pool", y, kernel=3, strides=2, padding=1)
    for stage, count in enumerate(blocks):
        channels = _scaled(64 * 2**stage, width)
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            y = _residual(layers, y, channels, stride, bottleneck)
    y = _op("nn.flatten", _op("nn.global_avg_pool", y))
    return _whole(x, layers.dense(y, classes))


def mobilenet(
    *, batch: int = 1, image: int = 224, classes: int = 1000, width: float = 1.0, seed: int = 0
) -> Module:
    """MobileNetV2 for classification, before softmax."""
    layers = _Layers(seed)
    x = Var(Name("x"), tensor((batch, 3, image, image), "f32"))
    y = _op("nn.relu6", layers.conv(x, _scaled(32, width), 3, 2))
    for expansion, channels, count, first in MOBILENET:
        for number in range(count):
            y = _inverted(layers, y, expansion, _scaled(channels, width), 1 if number else first)
    y = _op("nn.relu6", layers.conv(y, _scaled(1280, width), 1))
    y = _op("nn.flatten", _op("nn.global_avg_pool", y))
    return _whole(x, layers.dense(y, classes))


def _residual(layers: _Layers, x: Expr, channels: int, stride: int, bottleneck: bool) -> Expr:
    out = channels * 4 if bottleneck else channels
    if bottleneck:
        y = _op("nn.relu", layers.conv(x, channels, 1))
        y = _op("nn.relu", layers.conv(y, channels, 3, stride))
        y = layers.conv(y, out, 1)
    else:
        y = _op("nn.relu", layers.conv(x, channels, 3, stride))
        y = layers.conv(y, out, 3)
    if stride != 1 or _channels(x) != out:
        x = layers.conv(x, out, 1, stride)
    return _op("nn.relu", _op("add", y, x))


def _inverted(layers: _Layers, x: Expr, expansion: int, out: int, stride: int) -> Expr:
    channels = _channels(x)
    inner = channels * expansion
    y = x if expansion == 1 else _op("nn.relu6", layers.conv(x, inner, 1))
    y = _op("nn.relu6", layers.conv(y, inner, 3, stride, groups=inner))
    y = layers.conv(y, out, 1)
    return _op("add", x, y) if stride == 1 and channels == out else y


def _whole(x: Var, body: Expr) -> Module:
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), (x,), None, body)}, main))


def _scaled(channels: int, width: float) -> int:
    return max(4, round(channels * width))


def _channels(x: Expr) -> int:
    of = type_of(x)
    assert isinstance(of, TensorType)
    size = of.shape[1]
    return int(size.value)  # type: ignore[attr-defined]  # every dim of the zoo is a number
