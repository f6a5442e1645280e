"""A language model of the kind of Zaremba et al. (2014): an embedding, two LSTMs, the next word.

>>> small = lstm_lm(words=11, hidden=4, steps=3)
>>> str(small.main_function().ret)
'Tensor[(1, 11), f32]'
"""

from __future__ import annotations

from attrs import frozen

from plica.frontend.zoo.layer import Layers, apply, given, sizes, whole
from plica.ir.graph.expression import Const, Expr, Project
from plica.ir.graph.module import Module


@frozen(eq=False)
class LstmWeights:
    """The weights of one LSTM; the gates are input, output, forget, cell, one below the other."""

    inputs: Const  # (4 * hidden, inputs)
    state: Const  # (4 * hidden, hidden)
    bias: Const  # (4 * hidden,)


@frozen(eq=False)
class Weights:
    """All weights of a language model, so that other systems can be given the same."""

    embedding: Const  # (words, hidden)
    cells: tuple[LstmWeights, ...]
    out: Const  # (words, hidden)
    bias: Const  # (words,)


def lstm_weights(words: int = 10_000, hidden: int = 650, layers: int = 2, seed: int = 0) -> Weights:
    """Random weights; those of the gates are small enough that no gate is always shut."""
    draw = Layers(seed)
    embedding = draw.weight(words, hidden, sums=2)
    cells = [
        LstmWeights(
            draw.weight(4 * hidden, hidden, sums=2 * hidden),
            draw.weight(4 * hidden, hidden, sums=2 * hidden),
            draw.vector(4 * hidden),
        )
        for _ in range(layers)
    ]
    return Weights(embedding, tuple(cells), draw.weight(words, hidden), draw.vector(words))


def lstm_lm(
    *,
    words: int = 10_000,
    hidden: int = 650,
    layers: int = 2,
    steps: int = 35,
    batch: int = 1,
    seed: int = 0,
) -> Module:
    """How likely each word is to follow: from tokens (steps, batch), before softmax."""
    weights = lstm_weights(words, hidden, layers, seed)
    x = given("x", (steps, batch), "i64")
    y = apply("take", weights.embedding, x, axis=0)
    for cell in weights.cells:
        y = _layer(cell, y)
    last = apply("reshape", apply("slice", y, starts=(steps - 1,), stops=(steps,), axes=(0,)),
                 shape=(batch, hidden))  # fmt: skip
    return whole(x, apply("add", apply("nn.dense", last, weights.out), weights.bias))


def _layer(cell: LstmWeights, x: Expr) -> Expr:
    """The states of all steps: (steps, batch, hidden)."""
    steps, batch, _ = sizes(x)
    hidden = sizes(cell.state)[1]
    gates = apply("add", apply("nn.dense", x, cell.inputs), cell.bias)
    states: list[Expr] = []
    h = c = apply("zeros", shape=(batch, hidden), dtype="f32")
    for step in range(steps):
        own = apply("slice", gates, starts=(step,), stops=(step + 1,), axes=(0,))
        own = apply("reshape", own, shape=(batch, 4 * hidden))
        parts = apply("split", apply("add", own, apply("nn.dense", h, cell.state)),
                      indices_or_sections=4, axis=1)  # fmt: skip
        into, out, keep = (apply("nn.sigmoid", Project(parts, at)) for at in range(3))
        new = apply("multiply", into, apply("tanh", Project(parts, 3)))
        c = apply("add", apply("multiply", keep, c), new)
        h = apply("multiply", out, apply("tanh", c))
        states.append(h)
    return apply("stack", tuple(states), axis=0)
