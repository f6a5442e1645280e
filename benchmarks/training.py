"""Training steps beside torch in one run: forward, backward and update.

    python benchmarks/training.py [--rounds N] [--threads 1 2] [--json FILE] [--profile NAME]

The same nets, losses and optimiser (Adam) from the same weights; torch is eager, with its fused and
its plain Adam.  Plica's step is one native call.  All take turns; the least time counts, the median
stands beside it: time of the processor on one thread, of the clock on several.  Before that, five
steps of each must give the same losses.
"""

# mypy: ignore-errors
# ruff: noqa: PLR0917  (nets have many weights)
from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.training import adam, trainer

random = np.random.default_rng(5)


def entropy(scores, labels, classes=10):
    """The mean of minus the logarithm of what was given to the right answers."""
    taken = nn.log_softmax(scores, axis=-1) * op.one_hot(labels, depth=classes, dtype="f32")
    return -op.mean(op.sum(taken, axis=(1,)))


def cnn(x, labels, w1, b1, w2, b2, w3, b3):
    for w, b in ((w1, b1), (w2, b2)):
        x = nn.relu(nn.bias_add(nn.conv(x, w, padding=1), b, axis=1))
        x = nn.max_pool(x, kernel=2, strides=2)
    return entropy(nn.bias_add(nn.dense(nn.flatten(x), w3), b3, axis=1), labels)


def cnn_of_torch(x, labels, w1, b1, w2, b2, w3, b3):
    y = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=1)), 2)
    y = F.max_pool2d(F.relu(F.conv2d(y, w2, b2, padding=1)), 2)
    return F.cross_entropy(F.linear(y.flatten(1), w3, b3), labels)


def mlp(x, labels, w1, b1, w2, b2, w3, b3):
    y = nn.relu(nn.bias_add(nn.dense(x, w1), b1, axis=1))
    y = nn.relu(nn.bias_add(nn.dense(y, w2), b2, axis=1))
    return entropy(nn.bias_add(nn.dense(y, w3), b3, axis=1), labels)


def mlp_of_torch(x, labels, w1, b1, w2, b2, w3, b3):
    y = F.relu(F.linear(x, w1, b1))
    y = F.relu(F.linear(y, w2, b2))
    return F.cross_entropy(F.linear(y, w3, b3), labels)


def convolutional(side, channels=(16, 32)):
    a, b = channels
    last = b * (side // 4) ** 2
    return (
        cnn,
        cnn_of_torch,
        (1, side, side),
        [(a, 1, 3, 3), (a,), (b, a, 3, 3), (b,), (10, last), (10,)],
    )


def dense(count, width=128):
    return (
        mlp,
        mlp_of_torch,
        (count,),
        [(width, count), (width,), (width, width), (width,), (10, width), (10,)],
    )


# fmt: off
NETS = {
    "cnn 8x8":    convolutional(8),
    "cnn 28x28":  convolutional(28),
    "mlp 64":     dense(64),
    "mlp 784":    dense(784, 256),
}
# fmt: on


def setup(name, batch, threads):
    ours, theirs, of, shapes = NETS[name]
    weights = [
        (random.standard_normal(s) / np.sqrt(np.prod(s[1:]) or 1)).astype(np.float32)
        for s in shapes
    ]
    x = random.standard_normal((batch, *of)).astype(np.float32)
    labels = random.integers(0, 10, batch)
    names = [f"w{n}" for n in range(len(shapes))]
    params = [Var(Name("x"), tensor(x.shape, "f32")), Var(Name("labels"), tensor((batch,), "i64"))]
    params += [Var(Name(n), tensor(s, "f32")) for n, s in zip(names, shapes, strict=True)]
    loss = Function((), (), tuple(params), None, ours(*params))
    train = trainer(loss, adam(1e-3), wrt=tuple(names), threads=threads)
    state = train.start(**dict(zip(names, weights, strict=True)))
    return train, state, (x, labels), weights, theirs


def torch_step(weights, theirs, data, fused):
    own = [torch.tensor(each, requires_grad=True) for each in weights]
    x, labels = map(torch.from_numpy, data)
    way = torch.optim.Adam(own, lr=1e-3, fused=fused, foreach=None if fused else False)

    def run():
        way.zero_grad()
        loss = theirs(x, labels, *own)
        loss.backward()
        way.step()
        return loss

    return run


def compare(name, batch, threads, rounds):
    torch.set_num_threads(threads)
    train, state, data, weights, theirs = setup(name, batch, threads)
    peers = {f: torch_step(weights, theirs, data, f == "fused") for f in ("fused", "plain")}
    held = [state]

    def ours():
        loss, held[0] = train(held[0], *data)
        return loss

    for _ in range(5):
        mine, *others = float(ours()), *[float(each().detach()) for each in peers.values()]
        assert all(abs(mine - each) < 1e-4 * max(1, abs(each)) for each in others), (mine, others)
    ways = {"plica": ours, **peers}
    times = {key: [] for key in ways}
    clock = thread_time if threads == 1 else perf_counter
    for _ in range(rounds):
        for key, way in ways.items():
            way()
            for _ in range(3):
                start = clock()
                way()
                times[key].append(clock() - start)
    return {key: (min(each), median(each)) for key, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="*", default=[32, 128])
    parser.add_argument("--net", nargs="*", default=list(NETS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    if args.profile:
        for name in args.net:
            for batch in args.batch:
                train, state, data, *_ = setup(name, batch, args.threads[0])
                print(name, batch)
                print(train.exe.profile(state.weights, state.memory, *data, runs=200))
        return
    table = Table(
        "net",
        "batch",
        "threads",
        "plica µs",
        "median",
        "torch fused",
        "torch plain",
        "x",
        "x plain",
    )
    rows = []
    for name in args.net:
        for batch in args.batch:
            for threads in args.threads:
                found = compare(name, batch, threads, args.rounds)
                best, fused, plain = (found[key][0] for key in ("plica", "fused", "plain"))
                rows.append({"net": name, "batch": batch, "threads": threads, "seconds": found})
                words = [f"{1e6 * each:.0f}" for each in (best, found["plica"][1], fused, plain)]
                words += [f"{each / best:.2f}" for each in (fused, plain)]
                table.add_row(name, str(batch), str(threads), *words)
    Console(width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
