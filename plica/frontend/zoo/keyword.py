"""Keyword spotting (Zhang et al., 2017): DS-CNN tells spoken words by 49 frames of 10 numbers.

>>> small = ds_cnn(channels=8, blocks=1)
>>> str(small.main_function().ret)
'Tensor[(1, 12), f32]'
"""

from __future__ import annotations

from plica.frontend.zoo.layer import Layers, apply, given, whole
from plica.ir.graph.module import Module


def ds_cnn(
    *, frames: int = 49, features: int = 10, channels: int = 64, blocks: int = 4,
    words: int = 12, seed: int = 0,
) -> Module:  # fmt: skip
    """A convolution, then separable ones as in MobileNet, before softmax."""
    layers = Layers(seed)
    x = given("x", (1, 1, frames, features))
    y = apply("nn.relu", layers.conv_normed(x, channels, (10, 4), 2))
    for _ in range(blocks):
        y = apply("nn.relu", layers.conv_normed(y, channels, 3, groups=channels))
        y = apply("nn.relu", layers.conv_normed(y, channels, 1))
    y = apply("nn.flatten", apply("nn.global_avg_pool", y))
    return whole(x, layers.dense(y, words))
