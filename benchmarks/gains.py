"""What a short search gains on single kernels far from their roof, and where its time goes.

    python benchmarks/gains.py --seed S [--n 10] [--trials 64] [--threads 1] [--policy guided]
                               [--first 0] [--below 0.7] [--json FILE]

Operators are drawn as `cliffs.py` does; of each the piece with the largest space is taken if its
default takes `SHORTEST` to `LONGEST` seconds and reaches less than the given part of its roof
(operations and bytes of its arrays, by what the machine was measured to do).  It is searched with a
given number of trials; then the best few and the default are timed in turns, and the default stays
unless one is clearly faster.  A line is the part of the roof, the default, the gain, trials a
second, and milliseconds a trial of proposing (processor time) and of every stage; stages overlap.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import plica
from benchmarks.cliffs import drawn
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.processor import machine_of
from plica.codegen.operation_count import operations
from plica.codegen.target import Target
from plica.frontend.onnx import from_onnx
from plica.ir.loop.statement import Kernel
from plica.ir.type.dim import known
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.runtime.error import PlicaError
from plica.search.course import TuningSubject
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.measure.outcome import STAGES
from plica.search.policy.named import policy_named
from plica.search.record import Database, fingerprint, versions
from plica.search.space_of import space_of
from plica.search.task import tasks
from plica.search.tune_loop import Run, tuned

SHORTEST, LONGEST = 5e-6, 2e-3
"""Seconds of the default of work that is worth a search, and can be measured often."""

LEAST_SIZE = 64
"""Work with fewer schedules can be tried as a whole."""


def roofs(threads: int) -> tuple[float, Any]:
    """What the machine does at best: GFLOP/s, and GB/s by how much is moved."""
    model = plica.from_text(
        "import plica\nfrom plica import op\nfrom plica.script import Tensor, f32\n\n"
        "@plica.function\n"
        "def main(x: Tensor[(64, 64), f32]) -> Tensor[(64, 64), f32]:\n"
        "    return op.nn.relu(x)\n"
    )
    shown = plica.compile(model, threads=threads).profile(np.ones((64, 64), np.float32), runs=2)
    assert shown.peak is not None
    return shown.peak, shown.bandwidth


def bytes_of(kernel: Kernel) -> int:
    """The bytes of all arrays of a kernel."""
    return sum(
        math.prod(known(size) or 1 for size in each.shape) * each.dtype.numpy.itemsize
        for each in kernel.params
    )


def part_of_roof(kernel: Kernel, seconds: float, peak: float, bandwidth: Any) -> float:
    """Which part of what the machine could do a kernel does."""
    moved = bytes_of(kernel)
    speeds = bandwidth if not isinstance(bandwidth, float) else ((math.inf, bandwidth),)
    speed = next((each for size, each in speeds if moved <= size), speeds[-1][1])
    least = max(operations(kernel) / (peak * 1e9), moved / (speed * 1e9))
    return min(1.0, least / seconds)


class Proposing:
    """A policy that knows how much processor time it takes."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seconds, self.name = inner, 0.0, inner.name

    def begin(self, *given: Any) -> Any:
        """As the policy does."""
        return self.inner.begin(*given)

    def step(self, *given: Any) -> Any:
        """As the policy does."""
        return self._timed(self.inner.step, *given)

    def ahead(self, *given: Any) -> Any:
        """As the policy does."""
        return self._timed(self.inner.ahead, *given)

    def _timed(self, of: Callable[..., Any], *given: Any) -> Any:
        start = time.thread_time()
        found = of(*given)
        self.seconds += time.thread_time() - start
        return found


def searched(subject: TuningSubject, target: Target, asked: argparse.Namespace) -> dict[str, Any]:
    """One piece of work, searched."""
    with LocalMeasurer(target, TrialLimits(threads=asked.threads)) as measurer, Database() as into:
        policy: Any = Proposing(policy_named(asked.policy, machine_of(target)))
        measurer.measure(subject.task, subject.space, [subject.space.default])  # processes start
        run = Run(policy, measurer, into, fingerprint(target), 0, versions(target))
        start = time.perf_counter()
        (course,) = tuned([subject], run, asked.trials, finals=False)
        took = time.perf_counter() - start
        worked = [each for each in course.observations if each.cost is not None]
        best = sorted(worked, key=lambda each: each.cost or 0.0)
        points = dict.fromkeys([subject.space.default, *[each.point for each in best[:3]]])
        times = [each.cost for each in measurer.finals(subject.task, subject.space, list(points))]
    timed = [each for each in times if each is not None]
    trials = max(1, course.trials)
    default = subject.space.default
    at = next(
        (n + 1 for n, each in enumerate(course.curve) if each is not None and course.least
         and each <= 1.05 * course.least), trials)  # fmt: skip
    return {
        "default": timed[0],
        "gain": timed[0] / min(timed),
        "seen": (course.first or 0.0) / (course.least or 1.0),
        "near": at,
        "best": subject.space.sketches[best[0].point.sketch].name if best else "",
        "usual": subject.space.sketches[default.sketch].name,
        "trials": course.trials,
        "rate": trials / took,
        "stages": {
            "propose": 1e3 * policy.seconds / trials,
            **{each: 1e3 * course.stages.get(each, 0.0) / trials for each in STAGES},
        },
        "errors": course.errors,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--n", type=int, default=10, help="pieces of work")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--below", type=float, default=0.7)
    parser.add_argument("--policy", default="guided")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, asked.threads)
    assert isinstance(target, Target)
    peak, bandwidth = roofs(asked.threads)
    found: list[dict[str, Any]] = []
    number = asked.first
    with LocalMeasurer(target, TrialLimits(threads=asked.threads)) as measurer:
        while len(found) < asked.n:
            name, made, _ = drawn(asked.seed, number)
            number += 1
            try:
                pieces = tasks(from_onnx(made), DEFAULT_CONTRACT, (), target)
            except PlicaError:
                continue
            spaces = [(each, space_of(each, machine_of(target))) for each in pieces]
            if not spaces:
                continue
            task, space = max(spaces, key=lambda pair: pair[1].size)
            if space.size < LEAST_SIZE or not space.sketches:
                continue
            (first,) = measurer.measure(task, space, [space.default])
            if first.cost is None or not SHORTEST <= first.cost <= LONGEST:
                continue
            part = part_of_roof(space.sketches[0].kernel, first.cost, peak, bandwidth)
            if part >= asked.below:
                continue
            row = searched(TuningSubject(task, space), target, asked)
            found.append({"work": f"{asked.seed}/{number - 1} {name}", "roof": part, **row})
            stages = ", ".join([f"{word} {each:.0f}" for word, each in row["stages"].items()])
            print(
                f"{found[-1]['work'][:70]} | {task.name[:30]}: roof {part:.0%}, "
                f"{1e6 * row['default']:.1f} us, {row['gain']:.3f}x ({row['usual']} -> "
                f"{row['best']}, near after {row['near']}), {row['trials']} trials, "
                f"{row['rate']:.1f}/s; ms: {stages}; {row['errors']}",
                flush=True,
            )
            if asked.json is not None:
                asked.json.write_text(json.dumps(found, indent=1))
    gains = [each["gain"] for each in found]
    print(
        f"mean of {len(found)}: {geometric_mean(gains):.3f}x (median {median(gains):.3f}x), "
        f"{median([each['rate'] for each in found]):.1f} trials/s in the middle"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
