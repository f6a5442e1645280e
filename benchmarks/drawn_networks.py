"""Drawn networks: whole ONNX networks of twelve families, whose sizes and parts follow from a seed.

>>> name, model, inputs = network(seed=5, number=0)
>>> name == network(seed=5, number=0)[0]
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx

from benchmarks.drawn_model import Model, Random, size

ACTIVATIONS: Final = ("Relu", "Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu", "swish")


def activation(m: Model) -> str:
    """The name of an activation, for all layers of a network."""
    return str(m.random.choice(ACTIVATIONS))


def active(m: Model, value: str, kind: str) -> str:
    """A value after an activation."""
    if kind == "swish":
        return m.node("Mul", value, m.node("Sigmoid", value))
    return m.node(kind, value)


def dense(m: Model, value: str, inputs: int, outputs: int) -> str:
    """A dense layer with a bias."""
    weight = m.weight((m.random.standard_normal((inputs, outputs)) / inputs**0.5).astype("f4"))
    return m.node("Add", m.node("MatMul", value, weight), m.normal(outputs))


def conv(m: Model, value: str, sizes: tuple[int, int, int], **how: Any) -> str:
    """A convolution over two axes with a bias: inputs, outputs, window; `group`, `strides`."""
    inputs, outputs, window = sizes
    depth = inputs // how.get("group", 1)
    drawn = m.random.standard_normal((outputs, depth, window, window))
    weight = m.weight((drawn / (depth * window**2) ** 0.5).astype("f4"))
    return m.node("Conv", value, weight, m.normal(outputs), pads=[window // 2] * 4, **how)


def norm(m: Model, value: str, width: int, kind: str = "LayerNormalization") -> str:
    """A layer norm over the last axis, or a norm by the root of the mean square."""
    if kind == "LayerNormalization":
        return m.node(kind, value, m.normal(width), m.normal(width), axis=-1)
    square = m.node("ReduceMean", m.node("Mul", value, value), axes=[-1], keepdims=1)
    root = m.node("Sqrt", m.node("Add", square, m.weight(np.float32(1e-6))))
    return m.node("Mul", m.node("Div", value, root), m.normal(width))


def reshape(m: Model, value: str, *sizes: int) -> str:
    """A value of other sizes; 0 keeps one."""
    return m.node("Reshape", value, m.weight(np.array(sizes)))


def convolutional(m: Model) -> str:
    """Stages of convolutions, with or without a way past them."""
    r, kind = m.random, activation(m)
    channels, side = size(r, 8, 48), size(r, 32, 128)
    window, residual = int(r.choice([3, 3, 5, 7])), r.random() < 0.6
    y = active(m, conv(m, m.input(1, 3, side, side), (3, channels, window), strides=[2, 2]), kind)
    for _ in range(int(r.integers(2, 4))):
        outputs = round(channels * float(r.choice([1.5, 2, 1.75])))
        y = active(m, conv(m, y, (channels, outputs, 3), strides=[2, 2]), kind)
        for _ in range(int(r.integers(1, 3))):
            z = conv(m, y, (outputs, outputs, int(r.choice([1, 3, 3, 5]))))
            y = active(m, m.node("Add", y, z) if residual else z, kind)
        channels = outputs
    y = m.node("Flatten", m.node("GlobalAveragePool", y))
    return m.node("Softmax", dense(m, y, channels, size(r, 10, 1000)), axis=-1)


def separable(m: Model) -> str:
    """Depthwise and pointwise convolutions, with gates of whole channels."""
    r, kind = m.random, activation(m)
    channels, side = size(r, 8, 32), size(r, 48, 160)
    y = active(m, conv(m, m.input(1, 3, side, side), (3, channels, 3), strides=[2, 2]), kind)
    for _ in range(int(r.integers(3, 6))):
        inner, outputs = channels * int(r.integers(2, 5)), size(r, channels, 2 * channels)
        z = active(m, conv(m, y, (channels, inner, 1)), kind)
        stride, window = int(r.choice([1, 2])), int(r.choice([3, 3, 5]))
        z = conv(m, z, (inner, inner, window), group=inner, strides=[stride] * 2)
        z = active(m, z, kind)
        if r.random() < 0.5:
            few = max(4, inner // 8)
            gate = active(m, conv(m, m.node("GlobalAveragePool", z), (inner, few, 1)), "Relu")
            z = m.node("Mul", z, m.node("Sigmoid", conv(m, gate, (few, inner, 1))))
        y, channels = conv(m, z, (inner, outputs, 1)), outputs
    return y


def unet(m: Model) -> str:
    """Down by strides, up by transposed convolutions or by repeating, with what was before."""
    r, kind = m.random, activation(m)
    channels, side, depth = size(r, 8, 32), 16 * int(r.integers(3, 8)), int(r.integers(2, 4))
    y = active(m, conv(m, m.input(1, 3, side, side), (3, channels, 3)), kind)
    before = []
    for _ in range(depth):
        before.append((y, channels))
        y = active(m, conv(m, y, (channels, 2 * channels, 3), strides=[2, 2]), kind)
        channels *= 2
    for past, width in reversed(before):
        if r.random() < 0.5:
            y = m.node("ConvTranspose", y, m.normal(channels, width, 2, 2), strides=[2, 2])
        else:
            scales = m.weight(np.array([1, 1, 2, 2], np.float32))
            y = conv(m, m.node("Resize", y, "", scales, mode="nearest"), (channels, width, 3))
        y, channels = m.node("Concat", active(m, y, kind), past, axis=1), width
        y = active(m, conv(m, y, (2 * width, width, 3)), kind)
    return conv(m, y, (channels, int(r.integers(1, 20)), 1))


def attention(
    m: Model, x: str, sizes: tuple[int, int], heads: tuple[int, int], *, causal: bool
) -> str:
    """Heads of attention, of which several may share keys, with or without a mask."""
    (length, width), (count_all, kept) = sizes, heads
    depth = width // count_all

    def split(count: int, perm: list[int]) -> str:
        rows = reshape(m, dense(m, x, width, count * depth), 0, 0, count, depth)
        rows = m.node("Transpose", rows, perm=perm)
        if count == count_all:
            return rows
        shape = [
            1,
            count,
            count_all // count,
            *((depth, length) if perm[2] == 3 else (length, depth)),
        ]
        rows = m.node("Unsqueeze", rows, m.weight(np.array([2])))
        rows = m.node("Expand", rows, m.weight(np.array(shape)))
        return reshape(m, rows, 1, count_all, *shape[3:])

    scale = m.weight(np.float32(depth**-0.5))
    scores = m.node("MatMul", split(count_all, [0, 2, 1, 3]), split(kept, [0, 2, 3, 1]))
    scores = m.node("Mul", scores, scale)
    if causal:
        scores = m.node("Add", scores, m.weight(np.triu(np.full((length, length), -1e9, "f4"), 1)))
    mixed = m.node("MatMul", m.node("Softmax", scores, axis=-1), split(kept, [0, 2, 1, 3]))
    mixed = reshape(m, m.node("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, width)
    return dense(m, mixed, width, width)


def blocks(m: Model, x: str, length: int, width: int, causal: bool) -> str:
    """Blocks of attention and two dense layers."""
    r, kind = m.random, activation(m)
    heads = int(r.choice([each for each in (2, 3, 4, 6, 8) if width % each == 0]))
    kept = int(r.choice([each for each in (1, 2, heads) if heads % each == 0])) if causal else heads
    inner, normed = size(r, 2 * width, 4 * width), str(r.choice(["LayerNormalization", "root"]))
    for _ in range(int(r.integers(1, 4))):
        y = norm(m, x, width, normed)
        x = m.node("Add", x, attention(m, y, (length, width), (heads, kept), causal=causal))
        y = active(m, dense(m, norm(m, x, width, normed), width, inner), kind)
        x = m.node("Add", x, dense(m, y, inner, width))
    return norm(m, x, width, normed)


def encoder(m: Model) -> str:
    """A transformer over a sequence."""
    length, width = size(m.random, 16, 256), 24 * size(m.random, 4, 20)
    return blocks(m, m.input(1, length, width), length, width, causal=False)


def decoder(m: Model) -> str:
    """A causal transformer over words, with shared keys."""
    r = m.random
    length, width, words = size(r, 8, 192), 24 * size(r, 4, 16), size(r, 500, 8000)
    at = m.given(r.integers(0, words, (1, length)))
    x = m.node("Add", m.node("Gather", m.normal(words, width), at), m.normal(length, width))
    return dense(m, blocks(m, x, length, width, causal=True), width, words)


def vision(m: Model) -> str:
    """Patches of a picture, and a transformer over them."""
    r = m.random
    patch, count, width = int(r.choice([8, 14, 16])), int(r.integers(5, 14)), 24 * size(r, 4, 16)
    x = m.input(1, 3, patch * count, patch * count)
    weight = m.normal(width, 3, patch, patch)
    y = m.node("Conv", x, weight, m.normal(width), strides=[patch, patch])
    y = m.node("Transpose", reshape(m, y, 1, width, -1), perm=[0, 2, 1])
    y = blocks(m, y, count**2, width, causal=False)
    return dense(m, m.node("ReduceMean", y, axes=[1], keepdims=0), width, size(r, 10, 1000))


def dilated(m: Model) -> str:
    """Gated convolutions along time, each over more of it, with a way past them."""
    r = m.random
    channels, length = size(r, 8, 96), size(r, 300, 6000)
    y = m.node("Conv", m.input(1, 1, length), m.normal(channels, 1, 3), pads=[1, 1])
    for number in range(int(r.integers(2, 6))):
        reach = 2 ** (number % 4)
        halves = [
            m.node("Conv", y, m.normal(channels, channels, 3), m.normal(channels),
                   pads=[reach, reach], dilations=[reach])
            for _ in range(2)
        ]  # fmt: skip
        gated = m.node("Mul", m.node("Tanh", halves[0]), m.node("Sigmoid", halves[1]))
        y = m.node("Add", y, m.node("Conv", gated, m.normal(channels, channels, 1)))
    return m.node("Softmax", m.node("Conv", y, m.normal(size(r, 16, 256), channels, 1)), axis=1)


def recurrent(m: Model) -> str:
    """Layers of gates that go along a sequence, and a dense layer."""
    r, kind = m.random, str(m.random.choice(["LSTM", "GRU"]))
    length, width, hidden = size(r, 5, 60), size(r, 16, 128), size(r, 16, 256)
    y, gates = m.input(length, 1, width), 4 if kind == "LSTM" else 3
    for _ in range(int(r.integers(1, 3))):
        weights = m.normal(1, gates * hidden, width), m.normal(1, gates * hidden, hidden)
        y = m.node(kind, y, *weights, m.normal(1, 2 * gates * hidden), hidden_size=hidden)
        y, width = m.node("Squeeze", y, m.weight(np.array([1]))), hidden
    return m.node("LogSoftmax", dense(m, y, width, size(r, 20, 2000)), axis=-1)


def recommender(m: Model) -> str:
    """Rows of tables, all products of two of them, and dense layers."""
    r, kind = m.random, activation(m)
    batch, tables, width = size(r, 1, 128), int(r.integers(6, 27)), 4 * size(r, 2, 16)
    numbers = active(m, dense(m, m.input(batch, 13), 13, width), kind)
    rows = [reshape(m, numbers, batch, 1, width)]
    for _ in range(tables):
        words = size(r, 50, 2000)
        at = m.given(r.integers(0, words, (batch, 1)))
        rows.append(m.node("Gather", m.normal(words, width), at))
    x = m.node("Concat", *rows, axis=1)
    pairs = m.node("MatMul", x, m.node("Transpose", x, perm=[0, 2, 1]))
    count = (tables + 1) ** 2
    y = m.node("Concat", reshape(m, pairs, batch, count), numbers, axis=1)
    inner = size(r, 32, 256)
    y = active(m, dense(m, y, count + width, inner), kind)
    return m.node("Sigmoid", dense(m, y, inner, 1))


def graph(m: Model) -> str:
    """Sums over the neighbours of nodes, each divided by how many there are."""
    r, kind = m.random, activation(m)
    nodes, width = size(r, 50, 700), size(r, 8, 128)
    joined = m.given((r.random((nodes, nodes)) < 0.1).astype("f4"))
    degree = m.node("ReduceSum", joined, m.weight(np.array([1])), keepdims=1)
    shares = m.node("Div", joined, m.node("Add", degree, m.weight(np.float32(1))))
    y = m.input(nodes, width)
    for _ in range(int(r.integers(2, 4))):
        outputs = size(r, 8, 128)
        y = active(m, dense(m, m.node("MatMul", shares, y), width, outputs), kind)
        width = outputs
    return m.node("ReduceMax", y, axes=[0], keepdims=0)


def signal(m: Model) -> str:
    """Statistics of rows: norms, running totals, logarithms, columns, the largest ones."""
    r = m.random
    rows, length = size(r, 16, 400), size(r, 100, 4000)
    x = m.input(rows, length)
    mean = m.node("ReduceMean", x, axes=[1], keepdims=1)
    away = m.node("Sub", x, mean)
    spread = m.node("Sqrt", m.node("ReduceMean", m.node("Mul", away, away), axes=[1], keepdims=1))
    y = m.node("Div", away, m.node("Add", spread, m.weight(np.float32(1e-3))))
    if r.random() < 0.6:
        y = m.node("CumSum", y, m.weight(np.array(1)))
    y = m.node("Transpose", m.node("Tanh", y), perm=[1, 0])
    y = m.node("Softmax", dense(m, y, rows, size(r, 8, 200)), axis=int(r.choice([0, 1])))
    count = m.weight(np.array([min(8, rows // 2)]))
    return m.several("TopK", y, count, outputs=2, axis=1)[0]


def detector(m: Model) -> str:
    """Heads of several sizes over convolutions, joined: scores and boxes."""
    r, kind = m.random, activation(m)
    channels, side, classes = size(r, 12, 48), 32 * int(r.integers(2, 5)), size(r, 2, 81)
    y = active(m, conv(m, m.input(1, 3, side, side), (3, channels, 5), strides=[4, 4]), kind)
    found = []
    for _ in range(int(r.integers(2, 4))):
        y = active(m, conv(m, y, (channels, 2 * channels, 3), strides=[2, 2]), kind)
        channels *= 2
        head = conv(m, y, (channels, 3 * (classes + 4), 1))
        head = m.node("Transpose", head, perm=[0, 2, 3, 1])
        found.append(reshape(m, head, 1, -1, classes + 4))
    whole = m.node("Concat", *found, axis=1)
    scores, boxes = m.several("Split", whole, m.weight(np.array([classes, 4])), outputs=2, axis=2)
    best = m.node("ReduceMax", m.node("Softmax", scores, axis=-1), axes=[2], keepdims=1)
    return m.node("Concat", best, m.node("Sigmoid", boxes), axis=2)


FAMILIES: Final[tuple[Callable[[Model], str], ...]] = (
    convolutional, separable, unet, encoder, decoder, vision, dilated, recurrent, recommender,
    graph, signal, detector,
)  # fmt: skip


def network(seed: int, number: int) -> tuple[str, onnx.ModelProto, list[np.ndarray[Any, Any]]]:
    """A network of the seed: families take turns, everything else is drawn."""
    draft = Model(Random((seed, number)))
    family = FAMILIES[number % len(FAMILIES)]
    model = draft.made(family(draft))
    return f"{number} {family.__name__}", model, [values for _, values in draft.inputs]
