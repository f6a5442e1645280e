"""A generator of images from noise (Radford et al., 2015), by transposed convolutions.

>>> str(dcgan(width=4).main_function().ret)
'Tensor[(1, 3, 64, 64), f32]'
"""

from __future__ import annotations

from plica.frontend.zoo.layer import Layers, apply, given, whole
from plica.ir.graph.module import Module


def dcgan(*, noise: int = 100, batch: int = 1, width: int = 64, seed: int = 0) -> Module:
    """An image of 64 x 64 pixels from a given number of numbers; the last layer but one is `width`
    wide."""
    layers = Layers(seed)
    x = given("x", (batch, noise))
    y = apply("reshape", x, shape=(batch, noise, 1, 1))
    for factor, stride, padding in ((8, 1, 0), (4, 2, 1), (2, 2, 1), (1, 2, 1)):
        y = layers.normed(layers.spread(y, width * factor, 4, stride, padding))
        y = apply("nn.relu", y)
    return whole(x, apply("tanh", layers.spread(y, 3, 4, 2, 1)))
