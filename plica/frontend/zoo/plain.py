"""Plain stacks of layers: VGG, SqueezeNet, DQN, perceptrons, and the generator of DCGAN.

>>> str(vgg(11, image=32, width=0.0625, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'

>>> str(squeezenet(1, image=64, width=0.125, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'

>>> str(dqn(frame=36, width=0.25).main_function().ret)
'Tensor[(1, 18), f32]'

>>> str(mlp((8, 4, 2)).main_function().ret)
'Tensor[(1, 2), f32]'

>>> str(dcgan(width=4).main_function().ret)
'Tensor[(1, 3, 64, 64), f32]'
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
    """VGG (Simonyan and Zisserman, 2014): windows of three by three, then dense layers; `width`
    scales both."""
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
    """SqueezeNet 1.0 or 1.1 (Iandola et al., 2016): channels squeezed, expanded in two ways."""
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


CONVOLUTIONS: Final = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, window and stride


def dqn(
    *, actions: int = 18, batch: int = 1, frame: int = 84, width: float = 1.0, seed: int = 0
) -> Module:
    """DQN (Mnih et al., 2015): the value of every action after four frames."""
    layers = Layers(seed)
    x = given("x", (batch, 4, frame, frame))
    y: Expr = x
    for channels, kernel, stride in CONVOLUTIONS:
        conv = layers.conv(y, scaled(channels, width), kernel, stride, padding=0)
        y = apply("nn.relu", layers.biased(conv))
    y = apply("nn.relu", layers.dense(apply("nn.flatten", y), scaled(512, width)))
    return whole(x, layers.dense(y, actions))


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


def dcgan(*, noise: int = 100, batch: int = 1, width: int = 64, seed: int = 0) -> Module:
    """The generator of DCGAN (Radford et al., 2015): an image of 64 x 64 pixels from numbers; the
    last layer but one is `width` wide."""
    layers = Layers(seed)
    x = given("x", (batch, noise))
    y = apply("reshape", x, shape=(batch, noise, 1, 1))
    for factor, stride, padding in ((8, 1, 0), (4, 2, 1), (2, 2, 1), (1, 2, 1)):
        y = layers.normed(layers.spread(y, width * factor, 4, stride, padding))
        y = apply("nn.relu", y)
    return whole(x, apply("tanh", layers.spread(y, 3, 4, 2, 1)))
