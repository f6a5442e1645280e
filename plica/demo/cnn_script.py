"""A small convolutional network for 28x28 images, in the graph language's Python syntax."""

from __future__ import annotations

import numpy as np

import plica
from plica.op import nn
from plica.script import Tensor, f32

_random = np.random.default_rng(7)


def _weights(*shape: int) -> np.ndarray:
    fan_in = int(np.prod(shape[1:]))
    return (_random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


CONV1, BIAS1 = _weights(8, 1, 3, 3), _weights(8)
CONV2, BIAS2 = _weights(16, 8, 3, 3), _weights(16)
DENSE, BIAS3 = _weights(10, 16 * 7 * 7), _weights(10)


@plica.function
def block(
    x: Tensor[("n", "c", "h", "w"), f32],
    weight: Tensor[("o", "c", 3, 3), f32],
    bias: Tensor[("o",), f32],
):
    y = nn.relu(nn.bias_add(nn.conv(x, weight, padding=1), bias, axis=1))
    return nn.max_pool(y, kernel=2, strides=2)


@plica.function
def cnn(image: Tensor[(1, 1, 28, 28), f32]) -> Tensor[(1, 10), f32]:
    y = block(image, CONV1, BIAS1)
    y = block(y, CONV2, BIAS2)
    scores = nn.bias_add(nn.dense(nn.flatten(y), DENSE), BIAS3, axis=1)
    return nn.softmax(scores, axis=-1)
