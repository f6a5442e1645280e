"""Networks of few parameters (Iandola et al., 2016): channels squeezed, then expanded by two ways.

>>> str(squeezenet(1, image=64, width=0.125, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

# Channels and window of the first convolution; squeezed channels of each module, 0 for a pool.
SQUEEZENETS: Final[dict[int, tuple[int, int, tuple[int, ...]]]] = {
    0: (96, 7, (0, 16, 16, 32, 0, 32, 48, 48, 64, 0, 64)),
    1: (64, 3, (0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64)),
}


def squeezenet(
    version: int = 1,
    *,
    batch: int = 1,
    image: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    seed: int = 0,
) -> Module:
    """SqueezeNet 1.0 or 1.1 for classification, before softmax; `width` scales the channels."""
    if version not in SQUEEZENETS:
        raise ValueError(f"There is no SqueezeNet 1.{version}; known: 1.0, 1.1.")
    first, kernel, modules = SQUEEZENETS[version]
    layers = Layers(seed)
    x = given("x", (batch, 3, image, image))
    y = _relu(layers, layers.conv(x, scaled(first, width), kernel, 2, padding=0))
    for squeezed in modules:
        if squeezed == 0:
            y = apply("nn.max_pool", y, kernel=3, strides=2, ceil_mode=True)
            continue
        few = _relu(layers, layers.conv(y, scaled(squeezed, width), 1))
        ways = [_relu(layers, layers.conv(few, scaled(4 * squeezed, width), k)) for k in (1, 3)]
        y = apply("concat", tuple(ways), axis=1)
    y = _relu(layers, layers.conv(y, classes, 1))
    return whole(x, apply("nn.flatten", apply("nn.global_avg_pool", y)))


def _relu(layers: Layers, x: Expr) -> Expr:
    return apply("nn.relu", layers.biased(x))
