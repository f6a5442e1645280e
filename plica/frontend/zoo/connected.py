"""Densely connected networks (Huang et al., 2016): each layer sees what all before it made.

>>> str(densenet(121, image=32, width=0.125, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, sizes, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

# Layers of each block.
DENSENETS: Final[dict[int, tuple[int, ...]]] = {
    121: (6, 12, 24, 16),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
}
GROWTH: Final = 32
"""The channels that a layer adds."""


def densenet(
    depth: int = 121,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """A network for classification, before softmax; `width` scales the channels."""
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
