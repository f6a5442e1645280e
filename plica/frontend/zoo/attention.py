"""Encoders of transformers (Vaswani et al., 2017), normalised after each part as in BERT.

>>> small = transformer(words=13, width=8, layers=1, heads=2, steps=4)
>>> str(small.main_function().ret)
'Tensor[(1, 4, 8), f32]'
"""

from __future__ import annotations

from math import sqrt

from plica.frontend.zoo.layer import Layers, apply, given, sizes, whole
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.module import Module


def transformer(
    *,
    words: int = 30_522,
    width: int = 256,
    layers: int = 4,
    heads: int = 4,
    steps: int = 128,
    batch: int = 1,
    seed: int = 0,
) -> Module:
    """The states of a text after all layers, from tokens (batch, steps)."""
    draw = Layers(seed)
    x = given("x", (batch, steps), "i64")
    places = const(draw.random.standard_normal((1, steps, width)).astype("float32") * 0.1)
    words_ = apply("take", draw.weight(words, width, sums=2), x, axis=0)
    y = draw.layer_normed(apply("add", words_, places))
    for _ in range(layers):
        y = draw.layer_normed(apply("add", y, _attention(draw, y, heads)))
        inner = apply("nn.gelu", draw.dense(y, 4 * width))
        y = draw.layer_normed(apply("add", y, draw.dense(inner, width)))
    return whole(x, y)


def _attention(draw: Layers, x: Expr, heads: int) -> Expr:
    batch, steps, width = sizes(x)
    each = width // heads

    def split(axes: tuple[int, ...]) -> Expr:
        parts = apply("reshape", draw.dense(x, width), shape=(batch, steps, heads, each))
        return apply("transpose", parts, axes=axes)

    query, key, value = split((0, 2, 1, 3)), split((0, 2, 3, 1)), split((0, 2, 1, 3))
    scores = apply("divide", apply("matmul", query, key), const(sqrt(each), "f32"))
    mixed = apply("matmul", apply("nn.softmax", scores, axis=-1), value)
    joined = apply("reshape", apply("transpose", mixed, axes=(0, 2, 1, 3)),
                   shape=(batch, steps, width))  # fmt: skip
    return draw.dense(joined, width)
