"""Plain deep networks (Simonyan and Zisserman, 2014): windows of three by three, then dense layers.

>>> str(vgg(11, image=32, width=0.0625, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

# The number of convolutions before each pool.
VGGS: Final[dict[int, tuple[int, ...]]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def vgg(
    depth: int = 16,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """A network for classification, before softmax; `width` scales channels and dense layers."""
    if depth not in VGGS:
        raise ValueError(f"There is no VGG-{depth}; known: {', '.join(map(str, VGGS))}.")
    layers = Layers(seed)
    x = given("x", (batch, 3, image, image))
    y: Expr = x
    for stage, count in enumerate(VGGS[depth]):
        for _ in range(count):
            channels = scaled(min(64 * 2**stage, 512), width)
            y = apply("nn.relu", layers.biased(layers.conv(y, channels, 3)))
        y = apply("nn.max_pool", y, kernel=2, strides=2)
    y = apply("nn.flatten", y)
    for _ in range(2):
        y = apply("nn.relu", layers.dense(y, scaled(4096, width)))
    return whole(x, layers.dense(y, classes))
