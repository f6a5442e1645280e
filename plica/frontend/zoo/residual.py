"""Networks of blocks that see the input of the block before: ResNet and DenseNet.

>>> small = resnet(18, image=32, width=0.125, classes=10)
>>> [str(size.value) for size in small.main_function().params[0].type.shape]
['1', '3', '32', '32']

>>> str(densenet(121, image=32, width=0.125, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, sizes, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

# How many blocks each stage has, and whether they are bottlenecks.
RESNETS: Final[dict[int, tuple[tuple[int, ...], bool]]] = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
}


def resnet(
    depth: int = 18,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """ResNet (He et al., 2015): blocks add their input to their output; `width` scales channels."""
    if depth not in RESNETS:
        raise ValueError(f"There is no ResNet-{depth}; known: {', '.join(map(str, RESNETS))}.")
    blocks, bottleneck = RESNETS[depth]
    layers = Layers(seed)
    x = given("x", (batch, 3, image, image))
    y = apply("nn.relu", layers.conv_normed(x, scaled(64, width), 7, 2))
    y = apply("nn.max_pool", y, kernel=3, strides=2, padding=1)
    for stage, count in enumerate(blocks):
        channels = scaled(64 * 2**stage, width)
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            y = _block(layers, y, channels, stride, bottleneck)
    y = apply("nn.flatten", apply("nn.global_avg_pool", y))
    return whole(x, layers.dense(y, classes))


def _block(layers: Layers, x: Expr, channels: int, stride: int, bottleneck: bool) -> Expr:
    out = channels * 4 if bottleneck else channels
    if bottleneck:
        y = apply("nn.relu", layers.conv_normed(x, channels, 1))
        y = apply("nn.relu", layers.conv_normed(y, channels, 3, stride))
        y = layers.conv_normed(y, out, 1)
    else:
        y = apply("nn.relu", layers.conv_normed(x, channels, 3, stride))
        y = layers.conv_normed(y, out, 3)
    if stride != 1 or sizes(x)[1] != out:
        x = layers.conv_normed(x, out, 1, stride)
    return apply("nn.relu", apply("add", y, x))


# Layers of each block.
DENSENETS: Final[dict[int, tuple[int, ...]]] = {
    121: (6, 12, 24, 16),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
}
GROWTH: Final = 32  # the channels that a layer adds


def densenet(
    depth: int = 121,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """DenseNet (Huang et al., 2016): each layer sees what all before it made."""
    if depth not in DENSENETS:
        raise ValueError(f"There is no DenseNet-{depth}; known: {', '.join(map(str, DENSENETS))}.")
    layers, growth = Layers(seed), scaled(GROWTH, width)
    x = given("x", (batch, 3, image, image))
    y = apply("nn.relu", layers.conv_normed(x, 2 * growth, 7, 2))
    y = apply("nn.max_pool", y, kernel=3, strides=2, padding=1)
    for stage, count in enumerate(DENSENETS[depth]):
        if stage:
            y = layers.conv(_active(layers, y), sizes(y)[1] // 2, 1)
            y = apply("nn.avg_pool", y, kernel=2, strides=2)
        for _ in range(count):
            inner = layers.conv(_active(layers, y), 4 * growth, 1)
            more = layers.conv(_active(layers, inner), growth, 3)
            y = apply("concat", (y, more), axis=1)
    y = apply("nn.flatten", apply("nn.global_avg_pool", _active(layers, y)))
    return whole(x, layers.dense(y, classes))


def _active(layers: Layers, x: Expr) -> Expr:
    """Normalised before it is used."""
    return apply("nn.relu", layers.normed(x))
