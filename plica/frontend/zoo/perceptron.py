"""Perceptrons of several layers: matrices and vectors, and the price of a call.

>>> str(mlp((8, 4, 2)).main_function().ret)
'Tensor[(1, 2), f32]'
"""

from __future__ import annotations

from plica.frontend.zoo.layer import Layers, apply, given, whole
from plica.ir.graph.module import Module


def mlp(
    widths: tuple[int, ...] = (784, 512, 512, 512, 10), *, batch: int = 1, seed: int = 0
) -> Module:
    """Dense layers with ReLU between them, from the first width to the last."""
    layers = Layers(seed)
    x = given("x", (batch, widths[0]))
    y = layers.dense(x, widths[1])
    for width in widths[2:]:
        y = layers.dense(apply("nn.relu", y), width)
    return whole(x, y)
