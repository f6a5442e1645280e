"""The networks of the zoo, narrow and short: the same operators, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from plica.frontend.zoo import (
    dcgan,
    densenet,
    dqn,
    inception,
    lstm_lm,
    mlp,
    mobilenet,
    resnet,
    squeezenet,
    transformer,
    vgg,
)
from plica.frontend.zoo.layer import sizes
from plica.ir.graph.module import Module
from plica.ir.type.term import TensorType
from plica.runtime.port import Array

SMALL: dict[str, Callable[[], Module]] = {
    "mlp": partial(mlp, (8, 6, 6, 3)),
    "dqn": partial(dqn, frame=36, width=0.125),
    "resnet18": partial(resnet, 18, image=32, width=0.0625, classes=10),
    "resnet50": partial(resnet, 50, image=32, width=0.0625, classes=10),
    "mobilenet_v1": partial(mobilenet, 1, image=32, width=0.125, classes=10),
    "mobilenet_v2": partial(mobilenet, 2, image=32, width=0.125, classes=10),
    "squeezenet": partial(squeezenet, image=64, width=0.125, classes=10),
    "densenet121": partial(densenet, image=32, width=0.125, classes=10),
    "inception_v3": partial(inception, image=75, width=0.0625, classes=10),
    "vgg16": partial(vgg, image=32, width=0.0625, classes=10),
    "transformer": partial(transformer, words=13, width=8, layers=2, heads=2, steps=4),
    "dcgan": partial(dcgan, width=4, noise=6),
    "lstm_lm": partial(lstm_lm, words=11, hidden=4, steps=3),
}


def input_of(network: Module, seed: int = 0) -> Array:
    """Numbers for the one input of a network."""
    (x,) = network.main_function().params
    assert isinstance(x.type, TensorType)
    random = np.random.default_rng(seed)
    if x.type.dtype.is_float:
        return random.standard_normal(sizes(x)).astype(np.float32)
    return random.integers(0, 11, sizes(x))
