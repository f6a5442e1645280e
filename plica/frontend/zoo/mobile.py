"""Networks for phones (Howard et al., 2017; Sandler et al., 2018): a sum over the window of each
channel alone, then one over the channels of each pixel alone.

>>> small = mobilenet(1, image=32, width=0.125, classes=10)
>>> str(small.main_function().ret)
'Tensor[(1, 10), f32]'

>>> small = ds_cnn(channels=8, blocks=1)
>>> str(small.main_function().ret)
'Tensor[(1, 12), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, sizes, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

# Channels and stride of each block of version 1.
SEPARABLE: Final = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip

# Expansion, channels, blocks, stride of each stage of version 2.
INVERTED: Final = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def mobilenet(
    version: int = 2,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """MobileNet for classification, before softmax; `width` scales the channels."""
    if version not in _BODIES:
        raise ValueError(f"There is no MobileNet of version {version} here; known: 1, 2.")
    layers = Layers(seed)
    x = given("x", (batch, 3, image, image))
    y = _BODIES[version](layers, x, width)
    y = apply("nn.flatten", apply("nn.global_avg_pool", y))
    return whole(x, layers.dense(y, classes))


def _first(layers: Layers, x: Expr, width: float) -> Expr:
    y = apply("nn.relu", layers.conv_normed(x, scaled(32, width), 3, 2))
    for channels, stride in SEPARABLE:
        inner = sizes(y)[1]
        y = apply("nn.relu", layers.conv_normed(y, inner, 3, stride, groups=inner))
        y = apply("nn.relu", layers.conv_normed(y, scaled(channels, width), 1))
    return y


def _second(layers: Layers, x: Expr, width: float) -> Expr:
    y = apply("nn.relu6", layers.conv_normed(x, scaled(32, width), 3, 2))
    for expansion, channels, count, first in INVERTED:
        for number in range(count):
            y = _inverted(layers, y, expansion, scaled(channels, width), 1 if number else first)
    return apply("nn.relu6", layers.conv_normed(y, scaled(1280, width), 1))


def _inverted(layers: Layers, x: Expr, expansion: int, out: int, stride: int) -> Expr:
    channels = sizes(x)[1]
    inner = channels * expansion
    y = x if expansion == 1 else apply("nn.relu6", layers.conv_normed(x, inner, 1))
    y = apply("nn.relu6", layers.conv_normed(y, inner, 3, stride, groups=inner))
    y = layers.conv_normed(y, out, 1)
    return apply("add", x, y) if stride == 1 and channels == out else y


_BODIES: Final = {1: _first, 2: _second}


def ds_cnn(
    *, frames: int = 49, features: int = 10, channels: int = 64, blocks: int = 4,
    words: int = 12, seed: int = 0,
) -> Module:  # fmt: skip
    """DS-CNN (Zhang et al., 2017) tells spoken words: a convolution, then separable ones."""
    layers = Layers(seed)
    x = given("x", (1, 1, frames, features))
    y = apply("nn.relu", layers.conv_normed(x, channels, (10, 4), 2))
    for _ in range(blocks):
        y = apply("nn.relu", layers.conv_normed(y, channels, 3, groups=channels))
        y = apply("nn.relu", layers.conv_normed(y, channels, 1))
    y = apply("nn.flatten", apply("nn.global_avg_pool", y))
    return whole(x, layers.dense(y, words))
