"""Matrix products of f16 and bf16 of any size on a GPU beside torch, in one run, checked first.

    python benchmarks/gpu_products.py [SEED] [--json FILE]        all of it, where all is installed
    python benchmarks/gpu_products.py [SEED] --make FOLDER        artefacts, where no GPU is needed
    python benchmarks/gpu_products.py [SEED] --run FOLDER         run them: numpy and torch will do

`nn.Linear` 1000 x 1000 x 1000 and 512 x 768 x 3072 (rows, inputs, outputs) and a product of two
batches 16 x 197 x 64 x 197, each in f16 and bf16, then 20 shapes that are drawn from the seed: a
quarter of them batches, every second one with bias and gelu.  Weights of linear layers are
constants of the program; both sides of a batch are inputs.

Results on fresh inputs are compared with float64.  Times are device times: medians of CUDA events
around a CUDA graph on both sides, which take turns, each run queued behind a kernel that keeps the
device busy while it is launched (`device_time.py`).  `ratio` is torch's time over ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import plica
from benchmarks.device_time import in_turns, of_executable, of_graph

ARCHITECTURE = "sm_90a"
DRAWN = 20
GELU = (("approximate", "none"),)
SIZES = (16, 2048)
ROUNDS, RUNS = 5, 30
SECONDS = 200.0
"""After so long no further shape is begun."""
ERROR = {"f16": 2e-3, "bf16": 1.6e-2}
"""What rounding of the result, and of what the epilogue does to it, may add up to."""


@dataclass(frozen=True)
class Case:
    """A product: batch, rows, terms and columns, and whether bias and gelu follow."""

    name: str
    dtype: str
    batch: int
    rows: int
    terms: int
    columns: int
    ends: bool
    seed: int

    @property
    def file(self) -> str:
        return f"{self.name}-{self.dtype}.plica"

    @property
    def lead(self) -> tuple[int, ...]:
        return (self.batch,) if self.batch > 1 else ()

    @property
    def operations(self) -> int:
        return 2 * self.batch * self.rows * self.terms * self.columns

    def weights(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The constants of a linear layer, in f32, of numbers that f16 and bf16 have."""
        random = np.random.default_rng(self.seed)
        weight = random.integers(-8, 9, (self.columns, self.terms)).astype(np.float32) / 8
        return weight, random.integers(-8, 9, self.columns).astype(np.float32) / 8


def cases(seed: int) -> Iterator[Case]:
    """The shapes that are named, then those that are drawn."""
    number = 0
    for dtype in ("f16", "bf16"):
        for name, batch, rows, terms, columns in (
            ("linear-1000", 1, 1000, 1000, 1000), ("linear-512x768x3072", 1, 512, 768, 3072),
            ("batch-16x197x64x197", 16, 197, 64, 197),
        ):  # fmt: skip
            yield Case(name, dtype, batch, rows, terms, columns, False, number)
            number += 1
    random = Random(f"products/{seed}")
    low, high = (math.log(each) for each in SIZES)
    for at in range(DRAWN):
        rows, terms, columns = (round(math.exp(random.uniform(low, high))) for _ in range(3))
        batch = random.randrange(2, 25) if at % 4 == 3 else 1
        ends = at % 2 == 0
        name = f"drawn-{at:02}-{batch}x{rows}x{terms}x{columns}{'-gelu' * ends}"
        dtype = ("f16", "bf16")[at // 2 % 2]
        yield Case(name, dtype, batch, rows, terms, columns, ends, 1000 * seed + at)


# --- ours -----------------------------------------------------------------------------------------


def module(of: Case) -> Any:
    """The program of a case."""
    from plica.core.name import Name
    from plica.ir.graph.expression import Apply, Function, Var, const
    from plica.ir.graph.module import module as program
    from plica.ir.type.dtype import bf16, f16
    from plica.ir.type.term import tensor

    dtype = f16 if of.dtype == "f16" else bf16
    x = Var(Name("x"), tensor((*of.lead, of.rows, of.terms), of.dtype))
    given = [x]
    if of.batch > 1:
        y = Var(Name("y"), tensor((*of.lead, of.terms, of.columns), of.dtype))
        given.append(y)
        body: Any = Apply("matmul", (x, y))
    else:
        weight, bias = (each.astype(dtype.numpy) for each in of.weights())
        body = Apply("nn.dense", (x, const(weight, dtype)))
        if of.ends:
            body = Apply("nn.gelu", (Apply("add", (body, const(bias, dtype))),), GELU)
    if of.batch > 1 and of.ends:
        body = Apply("nn.gelu", (body,), GELU)
    main = Var(Name("main"), None)
    return program({main: Function((), (), tuple(given), None, body)}, main)


def make(seed: int, folder: Path) -> None:
    """Write the artefact of every case."""
    from plica.codegen.cuda.target import GpuTarget
    from plica.ir.type.infer import infer
    from plica.pipeline import assemble, lower
    from plica.runtime import archive
    from plica.runtime.artefact import to_members

    folder.mkdir(parents=True, exist_ok=True)
    target = GpuTarget(ARCHITECTURE)
    for each in cases(seed):
        begin = time.perf_counter()
        artefact = assemble(lower(infer(module(each)), target=target), target)
        archive.write(folder / each.file, archive.pack(to_members(artefact)))
        print(f"{each.file} made in {time.perf_counter() - begin:.1f} s", flush=True)


# --- both -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A line of the table: median and least seconds of both sides, the error against float64."""

    name: str
    dtype: str
    seconds: float
    torch: float
    operations: int
    error: float
    least: float
    torch_least: float

    @property
    def ratio(self) -> float:
        return self.torch / self.seconds

    def __str__(self) -> str:
        ours, theirs = (self.operations / each / 1e12 for each in (self.seconds, self.torch))
        wrong = "" if self.error <= ERROR[self.dtype] else "  WRONG"
        return (
            f"{self.dtype:4} {self.name:38} {self.seconds * 1e6:8.2f} us {ours:6.1f} TF | torch "
            f"{self.torch * 1e6:8.2f} us {theirs:6.1f} TF | {self.ratio:5.2f}x | "
            f"error {self.error:.1e}{wrong}"
        )


def measured(of: Case, path: Path) -> Row:
    """A case beside torch: right first, then how long it takes."""
    import torch
    import torch.utils.dlpack
    from torch.nn import functional

    dtype = torch.float16 if of.dtype == "f16" else torch.bfloat16
    exe: Any = plica.load(path)
    torch.manual_seed(of.seed)

    def drawn() -> list[Any]:
        shapes = [(*of.lead, of.rows, of.terms)]
        shapes += [(*of.lead, of.terms, of.columns)] if of.batch > 1 else []
        scale = of.terms**-0.25 if of.batch > 1 else of.terms**-0.5
        return [(torch.randn(shape, device="cuda") * scale).to(dtype) for shape in shapes]

    weight, bias = (torch.from_numpy(each).cuda() for each in of.weights())

    def network(given: list[Any], kind: Any) -> Any:
        given = [each.to(kind) for each in given]
        if of.batch > 1:
            found = given[0] @ given[1]
        else:
            found = functional.linear(given[0], weights[kind][0],
                                      weights[kind][1] if of.ends else None)  # fmt: skip
        return functional.gelu(found) if of.ends else found

    weights = {kind: (weight.to(kind), bias.to(kind)) for kind in (dtype, torch.float64)}
    with torch.inference_mode():
        fresh, again = drawn(), drawn()
        got = torch.utils.dlpack.from_dlpack(exe(*fresh)).double()
        exact = network(fresh, torch.float64)
        error = float((got - exact).abs().max() / exact.abs().max())
        ways = {
            "plica": of_executable(exe, *again),
            "torch": of_graph(lambda: network(again, dtype)),
        }
        times = in_turns(ways, ROUNDS, RUNS)
    ours, theirs = times["plica"], times["torch"]
    return Row(of.name, of.dtype, ours.median, theirs.median, of.operations, error,
               ours.least, theirs.least)  # fmt: skip


def run(seed: int, folder: Path, told: Path | None) -> None:
    """Measure every case whose artefact is in a folder."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    begin, rows = time.perf_counter(), list[Row]()
    for each in cases(seed):
        if each.dtype == "bf16" and importlib.util.find_spec("ml_dtypes") is None:
            print(f"{each.name}: ml_dtypes, which numpy needs for bf16, is not installed")
            continue
        if time.perf_counter() - begin > SECONDS:
            print(f"{each.name}: left out, no time")
            continue
        rows.append(measured(each, folder / each.file))
        print(rows[-1], flush=True)
    ratios = [row.ratio for row in rows]
    print(
        f"{len(rows)} products: min {min(ratios):.2f}x, median {statistics.median(ratios):.2f}x, "
        f"geometric mean {statistics.geometric_mean(ratios):.2f}x of torch, "
        f"{sum(row.error > ERROR[row.dtype] for row in rows)} wrong"
    )
    if told is not None:
        lines = [{**asdict(row), "ratio": row.ratio} for row in rows]
        told.write_text(json.dumps({"seed": seed, "rows": lines}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument("--run", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.make is not None:
        make(options.seed, options.make)
    if options.run is not None:
        run(options.seed, options.run, options.json)
    if options.make is None and options.run is None:
        with tempfile.TemporaryDirectory() as folder:
            make(options.seed, Path(folder))
            run(options.seed, Path(folder), options.json)


if __name__ == "__main__":
    main()
