"""Features: how many candidates a second are featurised, and given a score by a model.

    python benchmarks/features.py [--candidates N] [--repeat N] [--quality N]

Candidates are random points of the spaces of a matrix product and a convolution.  `first` is what
the first of them costs, when formulas are made; `replayed` is what a candidate costs without them.

With `--quality N` a given number of points of a small product are built and timed, and models are
asked to order those they have not seen; `--candidates 0` does only that.
"""

from __future__ import annotations

import argparse
import time
from random import Random

import numpy as np

from plica import op
from plica.codegen.llvm import toolchain
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import machine_of
from plica.codegen.native import NativeKernel
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.type.term import tensor
from plica.runtime.error import PlicaError
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts
from plica.schedule.replay import scheduled
from plica.search.feature import SpaceFeaturiser, features
from plica.search.model import Analytical, Model, SummedTime, held_out
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import Task


def task(name: str, shapes: tuple[tuple[int, ...], ...], out: tuple[int, ...], **more: int) -> Task:
    """A product or a convolution whose weight is known."""
    x, w = (Var(Name(n), tensor(shape, "f32")) for n, shape in zip("xw", shapes, strict=True))
    body: Expr = op.nn.conv2d(x, w, padding=(more["pad"],) * 2) if more else op.matmul(x, w)
    function = Function((), (), (x, w), tensor(out, "f32"), body)
    return Task(function, Facts((False, True), contract=reassociates), 1, name)


# fmt: off
TASKS = (
    task("matmul 512",  ((512, 512), (512, 512)),            (512, 512)),
    task("conv 64x56",  ((1, 64, 56, 56), (64, 64, 3, 3)),   (1, 64, 56, 56), pad=1),
)
SMALL = task("matmul 192", ((192, 192), (192, 192)), (192, 192))
# fmt: on


def throughput(of: Task, machine: Machine, candidates: int, repeat: int) -> None:
    """Print a line for a task."""
    space = space_of(of, machine)
    random = Random(0)
    featuriser = SpaceFeaturiser(space, machine)
    begin = time.perf_counter()
    known = [space.drawn(random) for _ in range(candidates)]
    packs = featuriser.of(known)
    first = time.perf_counter() - begin
    model = SummedTime().fitted(packs, Analytical().cycles(packs) + 1.0)
    points = [[space.drawn(random) for _ in range(candidates)] for _ in range(repeat)]
    took = []
    for each in points:
        begin = time.perf_counter()
        model.scores(featuriser.of(each))
        took.append(time.perf_counter() - begin)
    again = []
    for each in points:
        begin = time.perf_counter()
        model.scores(featuriser.of(each))
        again.append(time.perf_counter() - begin)
    begin, asked = time.perf_counter(), known[:10]
    for point in asked:
        replayed(space, point, machine)
    slow = len(asked) / (time.perf_counter() - begin)
    reports = [each.report for each in featuriser.featurisers]
    computed, without = (sum(getattr(r, n) for r in reports) for n in ("computed", "replayed"))
    print(
        f"{of.name:12}  {len(space.sketches):3} sketches  first {first:5.1f} s  "
        f"new {candidates / min(took):8.0f}/s  again {candidates / min(again):8.0f}/s  "
        f"replayed {slow:6.1f}/s  ({without} of {computed + without} without formulas)"
    )


def replayed(space: Space, point: Point, machine: Machine) -> None:
    """The features of a point the long way."""
    try:
        kernel = scheduled(space.trace(point), space.sketches[point.sketch].kernel)
        features(lower(kernel, "cpu"), machine)
    except PlicaError:
        return


ENOUGH = 0.03
"""Seconds for which a candidate is timed."""


def timed(space: Space, point: Point) -> float | None:
    """Seconds for a point, the least of several; None where it is illegal."""
    try:
        kernel = lower(scheduled(space.trace(point), space.sketches[point.sketch].kernel), "cpu")
    except PlicaError:
        return None
    ready = NativeKernel(kernel, fused=True)
    arrays = [
        np.ones([int(size.value) for size in each.shape], each.dtype.numpy)  # type: ignore[attr-defined]  # static
        for each in kernel.params[: kernel.inputs]
    ]
    took: list[float] = []
    while len(took) < 7 or (len(took) < 100 and sum(took) < ENOUGH):
        begin = time.perf_counter()
        ready(arrays)
        took.append(time.perf_counter() - begin)
    return min(took)


def order(of: Task, machine: Machine, candidates: int) -> None:
    """Print how well models order what they have not seen."""
    space = space_of(of, machine)
    random = Random(1)
    found = {
        point: timed(space, point) for point in [space.drawn(random) for _ in range(candidates)]
    }
    points = [point for point, cost in found.items() if cost is not None]
    costs = np.array([cost for cost in found.values() if cost is not None])
    packs = SpaceFeaturiser(space, machine).of(points)
    models: tuple[Model, ...] = (SummedTime(), SummedTime(whole=1), Analytical())
    print(f"{of.name}: {len(points)} candidates, {costs.min():.2e} to {costs.max():.2e} s")
    for model in models:
        every = [held_out(model, packs, costs, 0.3, seed) for seed in range(3)]
        pairwise = np.median([each.pairwise for each in every])
        best = np.median([each.recall for each in every])
        print(f"  {model.kind:12} pairwise {pairwise:.3f}   recall@30 {best:.3f}")


def main() -> None:
    """Parse the command line, print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quality", type=int, default=0)
    given = parser.parse_args()
    machine = machine_of(toolchain.host())
    for each in TASKS if given.candidates else ():
        throughput(each, machine, given.candidates, given.repeat)
    if given.quality:
        order(SMALL, machine, given.quality)


if __name__ == "__main__":
    main()
