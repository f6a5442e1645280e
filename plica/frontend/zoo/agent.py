"""The network of an agent that learns to play from pixels (Mnih et al., 2015).

>>> str(dqn(frame=36, width=0.25).main_function().ret)
'Tensor[(1, 18), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.frontend.zoo.layer import Layers, apply, given, scaled, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

CONVOLUTIONS: Final = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, window and stride."""


def dqn(
    *, actions: int = 18, batch: int = 1, frame: int = 84, width: float = 1.0, seed: int = 0
) -> Module:
    """The value of every action after four frames."""
    layers = Layers(seed)
    x = given("x", (batch, 4, frame, frame))
    y: Expr = x
    for channels, kernel, stride in CONVOLUTIONS:
        conv = layers.conv(y, scaled(channels, width), kernel, stride, padding=0)
        y = apply("nn.relu", layers.biased(conv))
    y = apply("nn.relu", layers.dense(apply("nn.flatten", y), scaled(512, width)))
    return whole(x, layers.dense(y, actions))
