"""Products of one row by weights in block formats, beside reading as many bytes; dequantisation.

    python benchmarks/lm_formats.py [Q4_0 Q8_0 f16 …] [--rows 1] [--columns 4096] [--depth 4096]
                                    [--megabytes 192] [--rounds 9] [--threads 1]
    python benchmarks/lm_formats.py --blocks 1000000 [IQ2_S …]

A step of decoding reads every weight once, so that memory decides.  There are as many weights as
fill the megabytes, each read by a product of its own; what they are measured by is the greatest
element of the same bytes (numpy, words of 8 bytes, in as many threads), in turns.  Processor time
over the threads, the least of all rounds and the median: the share says how fast the product is
where reading is 1.

With `--blocks` so many random blocks of each format are dequantised, and compared bit by bit with
the gguf package.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import gguf
import numpy as np

import plica
from plica import op
from plica.core import Name
from plica.ir.graph import Function, Module, Var, module
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica_lm.format import FORMATS

Array = np.ndarray[Any, Any]


def stored(name: str, columns: int, depth: int) -> tuple[tuple[int, int], str]:
    """The shape and dtype of a weight as it is stored."""
    if name in FORMATS:
        return (columns, FORMATS[name].row_bytes(depth)), "u8"
    return (columns, depth), name


def product(name: str, rows: int, columns: int, depth: int) -> Module:
    """Rows by a weight."""
    x = Var(Name("x"), tensor((rows, depth), "f32"))
    weight = Var(Name("weight"), tensor(*stored(name, columns, depth)))
    whole = FORMATS[name].decode(weight) if name in FORMATS else op.cast(weight, dtype="f32")
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x, weight), None, op.nn.dense(x, whole))}, main)


def seconds(work: Callable[[], object], threads: int) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / threads


def measure(name: str, of: argparse.Namespace) -> None:
    """One line: the share of reading, and what that is in bytes a second."""
    exe = plica.compile(product(name, of.rows, of.columns, of.depth), threads=of.threads)
    shape, dtype = stored(name, of.columns, of.depth)
    random = np.random.default_rng(0)
    one = random.integers(0, 64, shape).astype(np.uint8) if dtype == "u8" else random.random(shape)
    one = one if dtype == "u8" else one.astype(dtype.replace("f", "float"))
    weights = [one.copy() for _ in range(max(of.megabytes * 2**20 // one.nbytes, 1))]
    words = [each.reshape(-1).view(np.uint64) for each in weights]
    x = random.standard_normal((of.rows, of.depth)).astype(np.float32)
    parts = [part for each in words for part in np.array_split(each, of.threads)]
    with ThreadPoolExecutor(of.threads) as pool:
        ways: tuple[Callable[[], object], Callable[[], object]] = (
            lambda: [exe(x, each) for each in weights],
            lambda: list(pool.map(np.max, parts)),
        )
        taken = [[seconds(way, of.threads) for way in ways] for _ in range(of.rounds + 1)][1:]
    whole = sum(each.nbytes for each in weights)
    ours, reading = (min(each) for each in zip(*taken, strict=True))
    shares = [read / own for own, read in taken]
    print(f"{name:8} {reading / ours:5.2f} of reading (median {median(shares):.2f}), "
          f"{whole / ours / 1e9:6.2f} of {whole / reading / 1e9:.2f} GB/s", flush=True)  # fmt: skip


def compare(name: str, blocks: int) -> None:
    """Random blocks dequantised, beside gguf."""
    of, rows = FORMATS[name], dim_var("rows")
    raw, main = Var(Name("raw"), tensor((rows, of.size), "u8")), Var(Name("main"), None)
    exe = plica.compile(
        module({main: Function((rows,), (), (raw,), None, of.decode(raw))}, main), contract="exact"
    )
    wrong, random = 0, np.random.default_rng(0)
    for start in range(0, blocks, 50_000):
        data = random.integers(0, 256, (min(50_000, blocks - start), of.size), np.uint8)
        with np.errstate(all="ignore"):
            meant = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
        found = np.asarray(exe(data))
        both = np.isnan(found) & np.isnan(meant)
        wrong += int((~both & (found.view(np.uint32) != meant.view(np.uint32))).sum())
    print(f"{name:8} {blocks} blocks, {wrong} of {blocks * of.elements} weights differ", flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("formats", nargs="*")
    for name, value in (("rows", 1), ("columns", 4096), ("depth", 4096), ("megabytes", 192),
                        ("rounds", 9), ("threads", 1), ("blocks", 0)):  # fmt: skip
        ask.add_argument(f"--{name}", type=int, default=value)
    of = ask.parse_args()
    for name in of.formats or (FORMATS if of.blocks else ("f16", "Q8_0", "Q4_0", "Q4_K", "Q6_K")):
        if of.blocks:
            compare(name, of.blocks)
        else:
            measure(name, of)


if __name__ == "__main__":
    main()
