"""Training in compiled code: handwritten digits by a dense and by a convolutional net.

    python examples/train_digits.py [--net mlp cnn] [--epochs N] [--plot digits.svg]

The nets and their losses are functions of the graph language.  `plica.training.trainer` derives the
gradient, adds Adam, and compiles all of it to one native function: a step is one call.  The data is
that of scikit-learn, 1797 images of 8 x 8 (`pip install plica[examples]`).
"""

# mypy: ignore-errors
# ruff: noqa: F821, PLR0917, UP037  (nets have many weights, and sizes have names)
from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np

import plica
from plica import op
from plica.op import nn
from plica.report.page import element, joined
from plica.script import Tensor, f32, i64
from plica.training import adam, trainer

BATCH, TESTED, SEED = 64, 360, 0
COLOURS = {"mlp": "#c2571a", "cnn": "#1a6fc2"}

# --- the nets -------------------------------------------------------------------------------------


@plica.function
def entropy(scores: Tensor[("n", 10), f32], labels: Tensor[("n",), i64]) -> Tensor[(), f32]:
    right = op.one_hot(labels, depth=10, dtype=f32)
    return -op.mean(op.sum(nn.log_softmax(scores, axis=-1) * right, axis=(1,)))


@plica.function
def mlp(
    x: Tensor[("n", 1, 8, 8), f32],
    w1: Tensor[(128, 64), f32],
    b1: Tensor[(128,), f32],
    w2: Tensor[(64, 128), f32],
    b2: Tensor[(64,), f32],
    w3: Tensor[(10, 64), f32],
    b3: Tensor[(10,), f32],
) -> Tensor[("n", 10), f32]:
    y = nn.relu(nn.dense(nn.flatten(x), w1) + b1)
    y = nn.relu(nn.dense(y, w2) + b2)
    return nn.dense(y, w3) + b3


@plica.function
def cnn(
    x: Tensor[("n", 1, 8, 8), f32],
    w1: Tensor[(16, 1, 3, 3), f32],
    b1: Tensor[(16,), f32],
    w2: Tensor[(32, 16, 3, 3), f32],
    b2: Tensor[(32,), f32],
    w3: Tensor[(10, 128), f32],
    b3: Tensor[(10,), f32],
) -> Tensor[("n", 10), f32]:
    y = nn.relu(nn.bias_add(nn.conv(x, w1, padding=1), b1, axis=1))
    y = nn.max_pool(y, kernel=2, strides=2)
    y = nn.relu(nn.bias_add(nn.conv(y, w2, padding=1), b2, axis=1))
    y = nn.max_pool(y, kernel=2, strides=2)
    return nn.dense(nn.flatten(y), w3) + b3


@plica.function
def mlp_loss(
    x: Tensor[(64, 1, 8, 8), f32],
    labels: Tensor[(64,), i64],
    w1: Tensor[(128, 64), f32],
    b1: Tensor[(128,), f32],
    w2: Tensor[(64, 128), f32],
    b2: Tensor[(64,), f32],
    w3: Tensor[(10, 64), f32],
    b3: Tensor[(10,), f32],
) -> Tensor[(), f32]:
    return entropy(mlp(x, w1, b1, w2, b2, w3, b3), labels)


@plica.function
def cnn_loss(
    x: Tensor[(64, 1, 8, 8), f32],
    labels: Tensor[(64,), i64],
    w1: Tensor[(16, 1, 3, 3), f32],
    b1: Tensor[(16,), f32],
    w2: Tensor[(32, 16, 3, 3), f32],
    b2: Tensor[(32,), f32],
    w3: Tensor[(10, 128), f32],
    b3: Tensor[(10,), f32],
) -> Tensor[(), f32]:
    return entropy(cnn(x, w1, b1, w2, b2, w3, b3), labels)


# fmt: off
NETS = {
    "mlp": (mlp, mlp_loss, 40),
    "cnn": (cnn, cnn_loss, 30),
}
# fmt: on
WEIGHTS = ("w1", "b1", "w2", "b2", "w3", "b3")

# --- training -------------------------------------------------------------------------------------


def digits():
    """Images between 0 and 1 and their labels, those to learn from and those to test with."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    labels = found.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    images, labels = images[order], labels[order]
    return (images[TESTED:], labels[TESTED:]), (images[:TESTED], labels[:TESTED])


def beginning(train, random):
    """Weights to begin with: normal, the narrower the more of them are added up."""
    found = {}
    for name, of in train.step.weights:
        shape = tuple(size.value for size in of.shape)
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
        found[name] = (scale * random.standard_normal(shape)).astype(np.float32)
    return found


def trained(name, data, epochs=None):
    """The weights after some epochs, and the loss of every step."""
    _, loss, most = NETS[name]
    images, labels = data
    random = np.random.default_rng(SEED)
    train = trainer(loss, adam(2e-3), wrt=WEIGHTS)
    state = train.start(**beginning(train, random))
    losses = []
    for _ in range(epochs or most):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            some = order[start : start + BATCH]
            value, state = train(state, images[some], labels[some])
            losses.append(float(value))
    return state, losses


def accuracy(name, state, data):
    """The part of the images that get their own label."""
    images, labels = data
    exe = plica.compile(NETS[name][0])
    return float((exe(images, **state.named()).argmax(axis=1) == labels).mean())


# --- the plot -------------------------------------------------------------------------------------


def plot(curves, wide=640, high=360, edge=48):
    """The losses over the steps, by powers of ten, as SVG; each point is the mean of an epoch."""
    low, top = -4, 1
    parts = []
    for power in range(low, top + 1):
        y = edge / 2 + (top - power) / (top - low) * (high - 1.5 * edge)
        parts.append(element("line", x1=edge, y1=y, x2=wide - 10, y2=y, stroke="#ddd"))
        parts.append(element("text", f"1e{power}", x=8, y=y + 4, font_size=12))
    for number, (name, losses) in enumerate(curves.items()):
        steps = max(1, len(losses) // 60)
        means = [np.mean(losses[at : at + steps]) for at in range(0, len(losses), steps)]
        points = []
        for at, value in enumerate(means):
            x = edge + at / max(1, len(means) - 1) * (wide - edge - 10)
            y = (top - np.log10(max(value, 10.0**low))) / (top - low) * (high - 1.5 * edge)
            points.append(f"{x:.1f},{edge / 2 + max(0.0, y):.1f}")
        colour = COLOURS[name]
        parts.append(element("polyline", points=" ".join(points), fill="none", stroke=colour))
        words = f"{name}: {len(losses)} steps, {means[-1]:.4f} in the end"
        parts.append(element("text", words, x=wide - 260, y=40 + 18 * number, fill=colour))
    parts.append(element("text", "loss, from the first step to the last", x=edge, y=high - 10))
    how = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {wide} {high}"}
    return element("svg", joined(*parts), **how, font_family="sans-serif", font_size=13)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="*", default=list(NETS), choices=list(NETS))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--plot", type=Path, default=Path("digits.svg"))
    args = parser.parse_args()
    learnt, tested = digits()
    curves = {}
    for name in args.net:
        start = perf_counter()
        state, curves[name] = trained(name, learnt, args.epochs)
        found = accuracy(name, state, tested)
        took, count = perf_counter() - start, len(curves[name])
        print(f"{name}: {found:.2%} of {TESTED} test images, {count} steps in {took:.1f} s")
    args.plot.write_text(plot(curves))
    print(f"losses: {args.plot}")


if __name__ == "__main__":
    main()
