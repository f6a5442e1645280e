"""Inception, version 3 (Szegedy et al., 2015): several ways of looking at the same, side by side.

>>> str(inception(image=75, width=0.0625, classes=10).main_function().ret)
'Tensor[(1, 10), f32]'
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.frontend.zoo.layer import Layers, apply, given, scaled, whole
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module

Way = Sequence[tuple[int, tuple[int, int], int]]  # channels, window and stride of convolutions


def inception(
    *, batch: int = 1, image: int = 299, classes: int = 1000, width: float = 1.0, seed: int = 0
) -> Module:
    """Inception v3 for classification, before softmax, without its second classifier."""
    net = _Modules(Layers(seed), width)
    x = given("x", (batch, 3, image, image))
    y = net.conv(x, 32, (3, 3), 2)
    y = net.conv(net.conv(y, 32, (3, 3), 0), 64, (3, 3))
    y = net.conv(net.conv(_halved(y), 80, (1, 1)), 192, (3, 3), 0)
    y = _halved(y)
    for pooled in (32, 64, 64):
        y = net.fine(y, pooled)
    y = net.joined(y, [(384, (3, 3), 2)], [(64, (1, 1), 1), (96, (3, 3), 1), (96, (3, 3), 2)])
    for inner in (128, 160, 160, 192):
        y = net.long(y, inner)
    tall = [(192, (1, 1), 1), (192, (1, 7), 1), (192, (7, 1), 1), (192, (3, 3), 2)]
    y = net.joined(y, [(192, (1, 1), 1), (320, (3, 3), 2)], tall)
    for _ in range(2):
        y = net.wide(y)
    y = apply("nn.flatten", apply("nn.global_avg_pool", y))
    return whole(x, net.layers.dense(y, classes))


def _halved(x: Expr) -> Expr:
    return apply("nn.max_pool", x, kernel=3, strides=2)


class _Modules:
    """The modules of the network, with weights drawn in order of use."""

    def __init__(self, layers: Layers, width: float) -> None:
        self.layers, self.width = layers, width

    def conv(self, x: Expr, out: int, kernel: tuple[int, int], stride: int = 1) -> Expr:
        """A convolution that preserves the size; with stride 2, or 0 for 1, one without padding."""
        around = None if stride == 1 else 0
        expr = self.layers.conv(x, scaled(out, self.width), kernel, stride or 1, padding=around)
        return apply("nn.relu", self.layers.normed(expr))

    def along(self, x: Expr, way: Way) -> Expr:
        """Convolutions one after the other."""
        for out, kernel, stride in way:
            x = self.conv(x, out, kernel, stride)
        return x

    def pooled(self, x: Expr, out: int) -> Expr:
        """The mean of each window, then its channels mixed."""
        mean = apply("nn.avg_pool", x, kernel=3, strides=1, padding=1, count_include_pad=True)
        return self.conv(mean, out, (1, 1))

    def fine(self, x: Expr, pooled: int) -> Expr:
        """Windows of one, five, and twice three."""
        ways: tuple[Way, ...] = (
            [(64, (1, 1), 1)],
            [(48, (1, 1), 1), (64, (5, 5), 1)],
            [(64, (1, 1), 1), (96, (3, 3), 1), (96, (3, 3), 1)],
        )
        return _side_by_side(*[self.along(x, way) for way in ways], self.pooled(x, pooled))

    def joined(self, x: Expr, *ways: Way) -> Expr:
        """Branches that halve the size, concatenated with a pool."""
        return _side_by_side(*[self.along(x, way) for way in ways], _halved(x))

    def long(self, x: Expr, inner: int) -> Expr:
        """Windows of seven along one axis, then the other."""
        row, column = (1, 7), (7, 1)
        ways: tuple[Way, ...] = (
            [(192, (1, 1), 1)],
            [(inner, (1, 1), 1), (inner, row, 1), (192, column, 1)],
            [(inner, (1, 1), 1), *((inner, k, 1) for k in (column, row, column)), (192, row, 1)],
        )
        return _side_by_side(*[self.along(x, way) for way in ways], self.pooled(x, 192))

    def wide(self, x: Expr) -> Expr:
        """Ways that part once more at their end."""
        first = self.conv(x, 320, (1, 1))
        ends = [
            self.conv(inner, 384, kernel)
            for inner in (
                self.conv(x, 384, (1, 1)),
                self.along(x, [(448, (1, 1), 1), (384, (3, 3), 1)]),
            )
            for kernel in ((1, 3), (3, 1))
        ]
        return _side_by_side(first, *ends, self.pooled(x, 192))


def _side_by_side(*parts: Expr) -> Expr:
    return apply("concat", parts, axis=1)
