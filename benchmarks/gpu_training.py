"""Training steps on a GPU beside torch: forward, backward and update (Adam), f32, in one run.

    python benchmarks/gpu_training.py [WORD …] [--profile] [--target cuda] [--json FILE]

The same network, loss and optimiser from the same weights.  Losses and weights of one step must be
those of torch in float64.  Torch is eager with its fused Adam, and in a CUDA graph; times are
medians of CUDA events, in turns, nobody uses TF32; runs of a graph, ours and torch's, are queued
behind a kernel that keeps the device busy while they are launched (`device_time.py`).  With
`--target cpu` numbers are checked alone.
"""

# mypy: ignore-errors
# ruff: noqa: PLR0917  (networks have many weights)
from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from plica import op
from plica.core.diagnostic import CompilerBug
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.training import adam, step

ROUNDS, RUNS, LISTED = 3, 10, 16
ERROR = 2e-3
RATE = 1e-3


class OfPlica:
    """What networks are written in, as terms of a graph."""

    relu, gelu, softmax = nn.relu, nn.gelu, staticmethod(lambda x: nn.softmax(x, axis=-1))
    dense = staticmethod(lambda x, w, b: nn.dense(x, w) + b)
    conv = staticmethod(lambda x, w, b: nn.bias_add(nn.conv(x, w, padding=1), b, axis=1))
    pool = staticmethod(lambda x: nn.max_pool(x, kernel=2, strides=2))
    norm = staticmethod(nn.layer_norm)
    flat = staticmethod(nn.flatten)
    matmul = staticmethod(op.matmul)
    taken = staticmethod(lambda x, n: op.squeeze(op.slice(x, (n,), (n + 1,), axes=(0,)), axis=(0,)))
    reshape = staticmethod(lambda x, *sizes: op.reshape(x, sizes))
    transpose = staticmethod(lambda x, *axes: op.transpose(x, axes))

    @staticmethod
    def entropy(scores, labels, classes):
        taken = nn.log_softmax(scores, axis=-1) * op.one_hot(labels, depth=classes, dtype="f32")
        return -op.mean(op.sum(taken, axis=(1,)))


class OfTorch:
    """The same as calls of torch."""

    relu, gelu, softmax = F.relu, F.gelu, staticmethod(lambda x: F.softmax(x, -1))
    dense = staticmethod(F.linear)
    conv = staticmethod(lambda x, w, b: F.conv2d(x, w, b, padding=1))
    pool = staticmethod(lambda x: F.max_pool2d(x, 2))
    norm = staticmethod(lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b))
    flat = staticmethod(lambda x: x.flatten(1))
    matmul = staticmethod(torch.matmul)
    taken = staticmethod(lambda x, n: x[n])
    reshape = staticmethod(lambda x, *sizes: x.reshape(sizes))
    transpose = staticmethod(lambda x, *axes: x.permute(axes))
    entropy = staticmethod(lambda scores, labels, classes: F.cross_entropy(scores, labels))


def convolutional(batch, side, channels):
    """Convolutions, a pool after every second one, and a dense layer."""
    shapes, before = [], 3
    for width in channels:
        shapes += [(width, before, 3, 3), (width,)]
        before = width
    small = side // 2 ** (len(channels) // 2)
    shapes += [(10, before * small * small), (10,)]

    def loss(of, x, labels, *weights):
        for number in range(len(channels)):
            x = of.relu(of.conv(x, *weights[2 * number : 2 * number + 2]))
            x = of.pool(x) if number % 2 else x
        return of.entropy(of.dense(of.flat(x), *weights[-2:]), labels, 10)

    return loss, (batch, 3, side, side), (batch,), 10, shapes


def transformer(batch, length, width, heads, layers, classes):
    """Layers of a transformer, and a class for every token."""
    w = width
    one = [(w,), (w,), (3 * w, w), (3 * w,), (w, w), (w,), (w,), (w,),
           (4 * w, w), (4 * w,), (w, 4 * w), (w,)]  # fmt: skip
    shapes = [*one * layers, (classes, w), (classes,)]

    def attention(of, x, weights):
        both = of.reshape(of.dense(x, *weights[:2]), batch, length, 3, heads, w // heads)
        both = of.transpose(both, 2, 0, 3, 1, 4)
        q, k, v = (of.taken(both, number) for number in range(3))
        scores = of.matmul(q, of.transpose(k, 0, 1, 3, 2)) * (w // heads) ** -0.5
        mixed = of.transpose(of.matmul(of.softmax(scores), v), 0, 2, 1, 3)
        return of.dense(of.reshape(mixed, batch, length, w), *weights[2:])

    def loss(of, x, labels, *weights):
        for number in range(layers):
            own = weights[12 * number : 12 * number + 12]
            x = x + attention(of, of.norm(x, *own[:2]), own[2:6])
            y = of.gelu(of.dense(of.norm(x, *own[6:8]), *own[8:10]))
            x = x + of.dense(y, *own[10:])
        scores = of.dense(of.reshape(x, batch * length, w), *weights[-2:])
        return of.entropy(scores, labels, classes)

    return loss, (batch, length, w), (batch * length,), classes, shapes


# fmt: off
NETWORKS = {
    "cnn 64x3x32x32":        lambda: convolutional(64, 32, (32, 64, 64, 128)),
    "cnn 32x3x64x64":        lambda: convolutional(32, 64, (64, 64, 128, 128, 256, 256)),
    "transformer 8x128x256": lambda: transformer(8, 128, 256, 4, 2, 100),
    "transformer 4x256x512": lambda: transformer(4, 256, 512, 8, 4, 1000),
    "cnn 2x3x8x8":           lambda: convolutional(2, 8, (4, 8)),
    "transformer 2x5x8":     lambda: transformer(2, 5, 8, 2, 1, 7),
}
# fmt: on
"""The last two are for checks without a GPU."""


def stepped(loss, x, labels, weights, dtype, **options):
    """A step of torch's; gives the loss, and has its weights."""
    own = [each.to(dtype).clone().requires_grad_() for each in weights]
    way = torch.optim.Adam(own, lr=RATE, **options)
    x = x.to(dtype)

    def run():
        way.zero_grad(set_to_none=True)
        found = loss(OfTorch, x, labels, *own)
        found.backward()
        way.step()
        return found

    return run, own


def events(call):
    """How long a call takes from event to event, launched one by one: the host's time is in it."""

    def once():
        one, two = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        one.record()
        for _ in range(5):
            call()
        two.record()
        torch.cuda.synchronize()
        return one.elapsed_time(two) / 5e3

    return lambda runs: [once() for _ in range(runs)]


def compiled(loss, given, answers, shapes, target):
    """Plica's step: from weights, memory, inputs to the loss, weights and memory."""
    names = [f"w{number}" for number in range(len(shapes))]
    params = [Var(Name("x"), tensor(given, "f32")), Var(Name("labels"), tensor(answers, "i64"))]
    params += [Var(Name(n), tensor(s, "f32")) for n, s in zip(names, shapes, strict=True)]
    whole = Function((), (), tuple(params), None, loss(OfPlica, *params))
    made = step(whole, adam(RATE), wrt=tuple(names))
    return plica.compile(made.module, target=target, cache=False)


def flat(of):
    return [leaf for each in of for leaf in flat(each)] if isinstance(of, tuple | list) else [of]


def measured(name, target, profile):
    """One network: right first, then how long a step takes."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    on = "cuda" if target == "cuda" else "cpu"
    loss, given, answers, classes, shapes = NETWORKS[name]()
    weights = [torch.randn(s, device=on) / max(1, np.prod(s[1:])) ** 0.5 for s in shapes]
    x, labels = torch.randn(given, device=on), torch.randint(0, classes, answers, device=on)
    begin = time.perf_counter()
    exe = compiled(loss, given, answers, shapes, target)
    made = time.perf_counter() - begin
    empty = [torch.zeros_like(each) for each in weights]
    count = torch.zeros((), device=on)
    memory = (count, *[(each, each.clone()) for each in empty])
    args = (tuple(weights), memory, x, labels)
    taken = (
        torch.utils.dlpack.from_dlpack if on == "cuda" else (lambda x: torch.tensor(np.array(x)))
    )
    found = [taken(each) for each in flat(exe(*args))]
    run, own = stepped(loss, x, labels, weights, torch.float64)
    exact = [run().detach(), *[each.detach() for each in own]]
    got = [found[0], *found[1 : 1 + len(own)]]
    # Adam's first update is of one size whatever the slope: signs of tiny ones may differ.
    error = max(float((a.double() - b).abs().mean() / b.abs().max().clamp(min=1e-2))
                for a, b in zip(got, exact, strict=True))  # fmt: skip
    wrong = "" if error <= ERROR else "  WRONG"
    if on == "cpu":
        print(f"{name:24} made in {made:5.1f} s | error {error:.1e}{wrong}", flush=True)
        return {"name": name, "error": error}
    eager, _ = stepped(loss, x, labels, weights, torch.float32, fused=True)
    kept, _ = stepped(loss, x, labels, weights, torch.float32, fused=True, capturable=True)
    for _ in range(3):
        eager()
    timers = {"plica": of_executable(exe, *args), "eager": events(eager), "graph": of_graph(kept)}
    times = in_turns(timers, ROUNDS, RUNS)
    least = {word: each.least for word, each in times.items()}
    other = {word: each.median for word, each in times.items()}
    mine = other.pop("plica")
    rows = exe.profile(*args).rows
    beside = " | ".join([f"{w} {s * 1e6:8.1f} us {s / mine:5.2f}x" for w, s in other.items()])
    count = sum(each.each for each in rows)
    print(f"{name:24} {mine * 1e6:8.1f} us | {beside} | {count:.0f} launches | "
          f"made in {made:4.1f} s | error {error:.1e}{wrong}", flush=True)  # fmt: skip
    if profile:
        for row in sorted(rows, key=lambda each: -each.median)[:LISTED]:
            print(f"    {row.kernel[:56]:56} {row.median * 1e6:8.1f} us  x{row.each:3.0f} "
                  f"{row.gflops / 1e3:6.1f} TFLOP/s {row.gbytes:6.0f} GB/s")  # fmt: skip
    return {"name": name, "seconds": mine, "error": error, "made": made, **other, "least": least}


def main() -> None:
    """Each network that is for the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = [*NETWORKS][:-2] if asked.target == "cuda" else [*NETWORKS][-2:]
    rows = []
    for name in names:
        if asked.words and not any(word in name for word in asked.words):
            continue
        try:
            rows.append(measured(name, asked.target, asked.profile))
        except (plica.PlicaError, CompilerBug) as error:
            kind = "refused" if isinstance(error, plica.PlicaError) else "BUG"
            print(f"{name:24} {kind}: {str(error).splitlines()[0][:160]}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
