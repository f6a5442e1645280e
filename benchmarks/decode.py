# ruff: noqa: E501  # a script in lines
"""Decoding with a key / value cache: time of a step beside the memory that it must read.

    python benchmarks/decode.py [--layers 6] [--width 2048] [--heads 16] [--positions 2048]
                                [--threads 1] [--rounds 7]

A step of a transformer with one token: weights and caches are inputs, the caches are donated, so
that a row of each is written in place and each is read once.  Beside it stands the bandwidth of
reading as much memory, by BLAS over the same arrays, in turns with the steps in one process.  The
weights and caches together should be four times the last cache level at least.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import plica

Array = np.ndarray[Any, Any]


def text_of(layers: int, width: int, heads: int, positions: int) -> str:
    """The step as a script."""
    each, wide = width // heads, 4 * width
    params = [f"x: Tensor[(1, {width}), f32]", "pos: i64"]
    lines = [f"    at = op.reshape(op.iota(({positions},)), (1, {positions}, 1))"]
    lines += [
        f"    far = op.reshape(op.greater(op.iota(({positions},)), pos), (1, 1, {positions}))"
    ]
    caches = []
    for n in range(layers):
        for name in ("q", "k", "v", "o"):
            params.append(f"w{name}{n}: Tensor[({width}, {width}), f32]")
        params.append(f"up{n}: Tensor[({wide}, {width}), f32]")
        params.append(f"down{n}: Tensor[({width}, {wide}), f32]")
        for name in ("k", "v"):
            params.append(f"c{name}{n}: Tensor[({heads}, {positions}, {each}), f32]")
        split = f"({heads}, 1, {each})"
        lines += [
            f"    q{n} = op.reshape(op.nn.dense(x{n}, wq{n}), {split})",
            f"    k{n} = op.where(op.equal(at, pos), op.reshape(op.nn.dense(x{n}, wk{n}), {split}), ck{n})",
            f"    v{n} = op.where(op.equal(at, pos), op.reshape(op.nn.dense(x{n}, wv{n}), {split}), cv{n})",
            f"    s{n} = op.matmul(q{n}, op.transpose(k{n}, (0, 2, 1))) * {each**-0.5}",
            f"    p{n} = op.nn.softmax(op.where(far, -1e30, s{n}), axis=-1)",
            f"    a{n} = op.reshape(op.matmul(p{n}, v{n}), (1, {width}))",
            f"    b{n} = x{n} + op.nn.dense(a{n}, wo{n})",
            f"    x{n + 1} = b{n} + op.nn.dense(op.nn.relu(op.nn.dense(b{n}, up{n})), down{n})",
        ]
        caches += [f"k{n}", f"v{n}"]
    cache = f"Tensor[({heads}, {positions}, {each}), f32]"
    result = f"tuple[Tensor[(1, {width}), f32], {', '.join([cache] * 2 * layers)}]"
    head = f"@plica.function\ndef main({', '.join(params)}) -> {result}:"
    lines.insert(0, "    x0 = x")
    return "\n".join([head, *lines, f"    return x{layers}, {', '.join(caches)}"]) + "\n"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("layers", 6), ("width", 2048), ("heads", 16), ("positions", 2048),
                        ("threads", 1), ("rounds", 7)):  # fmt: skip
        ask.add_argument(f"--{name}", type=int, default=value)
    of = ask.parse_args()
    module = plica.from_text(text_of(of.layers, of.width, of.heads, of.positions))
    names = [f"c{kind}{n}" for n in range(of.layers) for kind in ("k", "v")]
    start = time.perf_counter()
    exe = plica.compile(module, threads=of.threads, cache=False, donate=names)
    print(f"compiled in {time.perf_counter() - start:.1f} s")
    draw = np.random.default_rng(0)
    given: dict[str, Any] = {"pos": np.int64(of.positions - 1)}
    for port in exe.inputs:
        if port.name != "pos":
            scale = port.shape[-1] ** -0.5
            given[port.name] = draw.random(port.shape, np.float32) * np.float32(scale)
    arrays = [each for each in given.values() if each.nbytes > 8]
    held = sum(each.nbytes for each in arrays)
    cached = sum(given[name].nbytes for name in names)
    moved = sum(each.bytes for each in exe.artefact.launches)
    print(f"weights and caches {held / 2**20:.0f} MiB, caches {cached / 2**20:.0f} MiB")
    print(f"a step moves {moved / 2**20:.0f} MiB, {moved / held:.4f} of what it must read")
    flat = [each.reshape(-1) for each in arrays]
    steps, reads = [], []
    for _ in range(of.rounds):
        start = time.perf_counter()
        results = exe(**given)
        steps.append(time.perf_counter() - start)
        start = time.perf_counter()
        for each in flat:
            np.dot(each, each)
        reads.append(time.perf_counter() - start)
    assert all(now is given[name] for now, name in zip(results[1:], names, strict=True))
    best, read = min(steps), min(reads)
    print(f"step {best * 1e3:.1f} ms ({held / best / 1e9:.1f} GB/s), "
          f"reading as much {read * 1e3:.1f} ms ({held / read / 1e9:.1f} GB/s), "
          f"{best / read:.2f}x")  # fmt: skip


if __name__ == "__main__":
    main()
