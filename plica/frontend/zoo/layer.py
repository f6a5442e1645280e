"""Layers: what networks of the zoo are made of, with weights drawn from a seed.

>>> layers = Layers(0)
>>> x = given("x", (1, 3, 8, 8))
>>> y = layers.normed(layers.conv(x, 4, 3, stride=2))
>>> sizes(y)
(1, 4, 4, 4)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.core.name import Name
from plica.ir.graph.expression import Const, Expr, Function, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.op import find
from plica.ir.type import TensorType, infer, static_shape, tensor, type_of


def apply(name: str, *args: Expr | tuple[Expr, ...], **attributes: Any) -> Expr:
    """An operator by its name, applied."""
    operator = find(name)
    assert operator is not None, name
    expr: Expr = operator(*args, **attributes)
    return expr


def given(name: str, shape: tuple[int, ...], dtype: str = "f32") -> Var:
    """An input of a network."""
    return Var(Name(name), tensor(shape, dtype))


def whole(x: Var, body: Expr) -> Module:
    """The network with one input as a module."""
    return infer(main_module(Function((), (), (x,), None, body)))


def sizes(x: Expr) -> tuple[int, ...]:
    """The shape of a tensor; every dim of the zoo is a number."""
    of = type_of(x)
    assert isinstance(of, TensorType)
    found = static_shape(of)
    assert found is not None
    return found


def scaled(channels: int, width: float) -> int:
    """The number of channels of a network that is a given number of times as wide, at least 4."""
    return max(4, round(channels * width))


class Layers:
    """Layers with random weights, drawn in order of use."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, sums: int | None = None) -> Const:
        """Weights of a layer whose sums have a given number of terms: those of all axes but the
        first."""
        terms = sums or int(np.prod(shape[1:])) or 1
        values = self.random.standard_normal(shape, np.float32) * np.sqrt(2.0 / terms)
        return const(values.astype(np.float32))

    def vector(self, size: int, low: float = -0.1, high: float = 0.1) -> Const:
        """Numbers between two others, by default those of a bias."""
        return const(self.random.uniform(low, high, size).astype(np.float32))

    def conv(
        self,
        x: Expr,
        out: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        *,
        padding: int | None = None,
    ) -> Expr:
        """A 2-D convolution, by default one that preserves the size (at stride 1)."""
        high, broad = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weight = self.weight(out, sizes(x)[1] // groups, high, broad)
        keeping = high // 2 if high == broad else (high // 2, broad // 2)
        around = keeping if padding is None else padding
        return apply("nn.conv", x, weight, strides=stride, padding=around, groups=groups)

    def spread(self, x: Expr, out: int, kernel: int, stride: int, padding: int) -> Expr:
        """A transposed convolution of two axes."""
        channels = sizes(x)[1]
        terms = channels * kernel * kernel // (stride * stride)
        weight = self.weight(channels, out, kernel, kernel, sums=terms)
        return apply("nn.conv_transpose", x, weight, strides=stride, padding=padding)

    def normed(self, x: Expr) -> Expr:
        """Batch normalisation with random statistics."""
        size = sizes(x)[1]
        gamma, beta = self.vector(size, 0.5, 1.5), self.vector(size)
        mean, variance = self.vector(size), self.vector(size, 0.5, 1.5)
        return apply("nn.batch_norm", x, gamma, beta, mean, variance)

    def conv_normed(
        self, x: Expr, out: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1
    ) -> Expr:
        """A convolution without a bias, and its batch normalisation."""
        return self.normed(self.conv(x, out, kernel, stride, groups))

    def biased(self, x: Expr) -> Expr:
        """A bias on every channel of an image."""
        return apply("nn.bias_add", x, self.vector(sizes(x)[1]), axis=1)

    def dense(self, x: Expr, out: int) -> Expr:
        """A dense layer with a bias on the last axis."""
        y = apply("nn.dense", x, self.weight(out, sizes(x)[-1]))
        return apply("add", y, self.vector(out))

    def layer_normed(self, x: Expr) -> Expr:
        """Layer normalisation of the last axis."""
        size = sizes(x)[-1]
        return apply("nn.layer_norm", x, self.vector(size, 0.5, 1.5), self.vector(size))
