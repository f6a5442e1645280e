"""Search on a GPU: tuned beside untuned kernels, and beside torch, in one run, checked first.

    python benchmarks/gpu_search.py [gemm products attention] [--seed S] [--trials 32]
                                    [--seconds T] [--json FILE]

Square products of f32 (no TF32) beside cuBLAS, ten products of f16 that are drawn from the seed as
`gpu_products.py` draws them, and attention of f16 in shapes that are drawn from it as well.  Each
is tuned with a given number of trials in a database of its own; tuned and untuned programs run in
turns on fresh inputs and are held against float64; what counts is the least time from one CUDA
event to the other, the device busy while a run is launched (`device_time.py`).  After so many
seconds no further case is begun, and what was left out is told.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from statistics import geometric_mean
from typing import Any

from attrs import asdict, frozen

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph
from benchmarks.gpu_attention import network
from benchmarks.gpu_products import Case, cases, module

ROUNDS, RUNS = 5, 20
SQUARES = (2048, 4096)
PRODUCTS, ATTENTIONS = 10, 4
LONGEST = 1536
"""Keys of attention: what a processor computes beside it, once, takes the square of that."""
ERROR = {"f32": 2e-5, "f16": 4e-3}
ASKED = {"gemm": 0.93, "products": 1.08, "attention": 1.1}
"""Of cuBLAS, of untuned code, of untuned code."""


@frozen
class Subject:
    """A program, the inputs of one call, what torch makes of them, and its dtype."""

    kind: str
    name: str
    program: Any
    draw: Callable[[], list[Any]]
    network: Callable[..., Any]
    dtype: str


@frozen
class Row:
    """Seconds of the untuned and the tuned program, and of torch."""

    kind: str
    name: str
    untuned: float
    tuned: float
    torch: float
    trials: int
    error: float
    how: str
    same: bool

    @property
    def gain(self) -> float:
        """Where both are one text, what they differ by is noise."""
        return 1.0 if self.same else self.untuned / self.tuned

    def __str__(self) -> str:
        times = " ".join(f"{1e6 * each:9.2f}" for each in (self.untuned, self.tuned, self.torch))
        return (
            f"{self.kind:10} {self.name:34} {times} us | {self.gain:5.2f}x untuned, "
            f"{self.torch / self.tuned:5.2f}x torch | {self.trials} trials | "
            f"error {self.error:.1e} | {'the same code: ' * self.same}{self.how}"
        )


def squares() -> Iterator[Subject]:
    """Products of f32."""
    import torch

    for n in SQUARES:
        text = f"""
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[({n}, {n}), f32], y: Tensor[({n}, {n}), f32]) -> Tensor[({n}, {n}), f32]:
    return op.matmul(x, y)
"""

        def draw(n: int = n) -> list[Any]:
            return [torch.randn((n, n), device="cuda") for _ in range(2)]

        yield Subject("gemm", str(n), plica.from_text(text), draw, torch.matmul, "f32")


def products(seed: int) -> Iterator[Subject]:
    """Products of f16 that are drawn."""

    def every() -> Iterator[Case]:
        at = seed
        while True:
            yield from [e for e in cases(at) if e.dtype == "f16" and e.name.startswith("drawn")]
            at += 1

    for each in islice(every(), PRODUCTS):
        yield _product(each)


def _product(of: Case) -> Subject:
    import torch
    from torch.nn import functional

    def draw() -> list[Any]:
        shapes = [(*of.lead, of.rows, of.terms)]
        shapes += [(*of.lead, of.terms, of.columns)] if of.batch > 1 else []
        scale = of.terms**-0.25 if of.batch > 1 else of.terms**-0.5
        return [(torch.randn(shape, device="cuda") * scale).half() for shape in shapes]

    weight, bias = (torch.from_numpy(each).cuda().half() for each in of.weights())

    def torchs(*given: Any) -> Any:
        kind = given[0].dtype
        if of.batch > 1:
            found = given[0] @ given[1]
        else:
            found = functional.linear(given[0], weight.to(kind), bias.to(kind) if of.ends else None)
        return functional.gelu(found) if of.ends else found

    return Subject("products", of.name, module(of), draw, torchs, "f16")


def attentions(seed: int) -> Iterator[Subject]:
    """Attention in drawn shapes, every second one causal."""
    import torch

    random = Random(f"attention/{seed}")
    for at in range(ATTENTIONS):
        causal = at % 2 == 1
        width = random.choice((64, 128))
        length = 64 * round(math.exp(random.uniform(math.log(4), math.log(LONGEST / 64))))
        shape = (random.randrange(1, 5), random.randrange(4, 13), length, width)
        whole = network(causal)

        def draw(shape: tuple[int, ...] = shape) -> list[Any]:
            return [torch.randn(shape, device="cuda").half() for _ in range(3)]

        program = plica.from_torch(torch.export.export(whole, tuple(draw())))
        name = f"{'x'.join(map(str, shape))}{' causal' * causal}"
        yield Subject("attention", name, program, draw, whole, "f16")


def measured(of: Subject, trials: int) -> Row:
    """One case: tuned, then both programs and torch in turns."""
    import torch
    import torch.utils.dlpack

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tune.db")
        found = plica.tune(of.program, "cuda", trials, path, progress=False)
        untuned: Any = plica.compile(of.program, "cuda", cache=False)
        tuned: Any = plica.compile(of.program, "cuda", database=path, cache=False)
    with torch.inference_mode():
        fresh, again = of.draw(), of.draw()
        exact = of.network(*[each.double() for each in fresh])
        error = 0.0
        for exe in (untuned, tuned):
            got = torch.utils.dlpack.from_dlpack(exe(*fresh)).double()
            error = max(error, float((got - exact).abs().max() / exact.abs().max()))
        timers = {"untuned": of_executable(untuned, *again), "tuned": of_executable(tuned, *again),
                  "torch": of_graph(lambda: of.network(*again))}  # fmt: skip
        times = in_turns(timers, ROUNDS, RUNS)
    how = "; ".join(line.split(" as ")[-1] for line in tuned.tuning.splitlines()[1:])
    failed = [each for course in found.courses for each in course.errors.items()]
    how += f" failed: {dict(failed)}" if failed else ""
    same = untuned.source("cuda") == tuned.source("cuda")
    least = times["untuned"].least, times["tuned"].least, times["torch"].least
    return Row(of.kind, of.name, *least, found.trials, error, how, same)


def said(kind: str, rows: list[Row]) -> str:
    """What is asked of one kind, and what was seen."""
    ratios = [e.torch / e.tuned if kind == "gemm" else e.gain for e in rows]
    beside = "of cuBLAS" if kind == "gemm" else "of untuned code"
    mean = geometric_mean(ratios)
    verdict = "holds" if mean >= ASKED[kind] else "MISSED"
    return f"{kind}: {mean:.3f}x {beside}, {ASKED[kind]} asked, {len(rows)} cases: {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    begun = time.monotonic()
    ways: dict[str, Callable[[], Iterator[Subject]]] = {
        "gemm": squares,
        "attention": lambda: attentions(asked.seed),
        "products": lambda: products(asked.seed),
    }
    rows: list[Row] = []
    for kind, subjects in ways.items():
        if asked.kinds and kind not in asked.kinds:
            continue
        for each in subjects():
            if time.monotonic() - begun > asked.seconds:
                print(f"{kind} {each.name}: left out, no time", flush=True)
                continue
            try:
                rows.append(measured(each, asked.trials))
            except plica.PlicaError as error:
                print(f"{kind} {each.name}: refused: {str(error).splitlines()[0]}", flush=True)
                continue
            wrong = "  WRONG" if rows[-1].error > ERROR[each.dtype] else ""
            print(f"{time.monotonic() - begun:4.0f} s {rows[-1]}{wrong}", flush=True)
    for kind in ways:
        if mine := [each for each in rows if each.kind == kind]:
            print(said(kind, mine), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
