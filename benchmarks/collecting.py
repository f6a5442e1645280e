"""Candidates of drawn work measured on one core, with the kernels that their features are made of.

    python benchmarks/collecting.py FOLDER --seed S [--first N --step K] [--each 100]
                                    [--most M] [--least SIZE] [--models DIR] [--seconds T]
                                    [--no-products] [--below B]

Operators are drawn as `cliffs.py` does; with `--models` the N-th network of a folder is taken
instead, its kernels in an order by the seed.  Work whose default takes less than `SHORTEST` or more
than `LONGEST` seconds is left out: of the one nothing is gained, of the other little is measured.
One process at a time builds a candidate and times it: on a core of its own
nothing else runs.  Of each piece of work what every sketch decides by itself is measured first,
then drawn points and changes of the fastest, half and half from a third on; a space with no more
points than asked for is measured as a whole.  Each piece of work is one file in the folder, which
`tables.py pack` makes tables of; since it holds kernels, features that are thought of later can be
read off it, too.  With `--no-products` work is left out that is a contraction of two tensors: of
sums, norms, windows and maps there is less in a draw than there is to be learned.  With `--below`
work is given up whose default has not been seen to take more than the best over B.
"""

from __future__ import annotations

import argparse
import gzip
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from attrs import frozen

from benchmarks.cliffs import drawn
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.core.collector import paused
from plica.frontend.onnx import from_onnx
from plica.rewrite.fuzz.judge import CRASHES
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.runtime.error import PlicaError
from plica.schedule.default.contraction import contraction
from plica.schedule.replay import scheduled
from plica.search.feature.layout import Nests
from plica.search.feature.nest import nests_of
from plica.search.measure import TrialLimits, worker
from plica.search.measure.build import objects_of, target_of
from plica.search.measure.frame import MessageFrame
from plica.search.measure.job import MeasureJob, job_of
from plica.search.measure.outcome import Outcome
from plica.search.measure.process import Lost, Worker
from plica.search.model.model import pairwise_accuracy
from plica.search.observation import point_text
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import Task, tasks

NOISE = 0.05
"""Pairs that differ by less say nothing."""

LEAST_SIZE = 64
"""Work with fewer schedules needs no model: all of them can be tried."""

PIECES = 2
"""Of one operator at most this many pieces of work, those with the largest spaces."""

SHORTEST, LONGEST = 2e-6, 3e-3
"""Seconds of the default of work that is worth a search, and can be measured often."""

LOOKED = 0.2
"""After this part of what is measured it is known whether a default leaves something to be found,
where only such work is asked for."""

RUNS = 2
"""How often a candidate is timed, with memory of its own: where its arrays lie is part of its time
that no model can know."""

MAIN = "from benchmarks.collecting import serve; serve()"
LIMITS = TrialLimits(repeats=6, least=0.003, run_seconds=6.0, build_seconds=8.0)


@frozen(eq=False)
class MeasuredWork:
    """The candidates of one piece of work: points as text, the least seconds of all runs and those
    of the last one, kernels as they are compiled."""

    name: str
    points: tuple[str, ...]
    costs: tuple[float, ...]
    again: tuple[float, ...]
    kernels: tuple[bytes, ...]
    size: int

    def nests_of(self, at: int) -> Nests:
        """What the features of a candidate are made of."""
        return nests_of(pickle.loads(self.kernels[at]))


def serve() -> None:
    """The worker: it builds a candidate and times it."""

    def answer(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
        job = MeasureJob.from_json(asked.head["job"])
        try:
            with paused():
                kernel = lower(scheduled(job.trace, job.kernel), "cpu")
                objects = objects_of(kernel, target_of(job), job.reassociates)
        except (PlicaError, MemoryError, *CRASHES):
            return MessageFrame({"outcomes": []})
        head = {**asked.head, "others": []}
        trial = MessageFrame(head, objects)
        answers = [worker.run(worker.PROCESSOR, trial, limits).head for _ in range(RUNS)]
        outcomes = [each["outcome"] for each in answers]
        return MessageFrame({"outcomes": outcomes}, (pickle.dumps(kernel, protocol=5),))

    worker.main({"trial": answer})


class Collector:
    """One worker, and what it has measured of the work at hand."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._worker = Worker(LIMITS, main=MAIN)

    def measured(self, task: Task, space: Space, point: Point, bar: float | None) -> Any:
        """The seconds of each run and the pickled kernel of a point, None where there are none."""
        job = job_of(task, space, point, self.target)
        asked = MessageFrame({"do": "trial", "job": job.to_json(), "bar": bar})
        answer = self._worker.ask(asked, 10.0)
        if isinstance(answer, Lost):
            return None
        outcomes = [Outcome.from_json(each) for each in answer.head["outcomes"]]
        costs = [each.cost for each in outcomes if each.cost is not None]
        return (costs, answer.blobs[0]) if len(costs) == RUNS else None

    def work(
        self, name: str, task: Task, space: Space, each: int, end: float, *, below: float = 1.0
    ) -> MeasuredWork | None:
        """All candidates of one piece of work; None where it is too short, too long, or refused, or
        the first have shown nothing that takes less than a part of what its default takes."""
        random = Random(name)
        found: dict[Point, Any] = {}
        costs: dict[Point, float] = {}
        tried: set[Point] = set()
        least: float | None = None

        def measure(points: Sequence[Point]) -> None:
            nonlocal least
            for point in points:
                if point in tried or len(found) >= each or time.monotonic() > end:
                    continue
                tried.add(point)
                if (result := self.measured(task, space, point, least)) is not None:
                    found[point] = result
                    costs[point] = min(result[0])
                    least = min(costs[point], least or costs[point])

        measure([space.default])
        if not costs or not SHORTEST <= costs[space.default] <= LONGEST:
            return None
        measure(space.defaults()[: each // 3])
        if space.size <= each + each // 8:
            measure(list(space.points()))
        while len(found) < min(each, space.size) and len(tried) < 4 * each:
            slow = costs[space.default] * below < min(costs.values())
            if time.monotonic() > end or (len(found) >= each * LOOKED and below < 1 and slow):
                break
            best = sorted(costs, key=lambda point: costs[point])[:8]
            near = 8 if len(found) > each // 3 else 0
            points = [space.mutated(random.choice(best), random) for _ in range(near)]
            measure([*points, *(space.drawn(random) for _ in range(8))])
        if below < 1 and costs[space.default] * below < min(costs.values()):
            return None
        points = list(found)
        return MeasuredWork(
            name,
            tuple(map(point_text, points)),
            tuple([costs[p] for p in points]),
            tuple([found[p][0][-1] for p in points]),
            tuple([found[p][1] for p in points]),
            space.size,
        )


Pieces = Iterator[tuple[str, Task, Space]]
"""Work with its name and its space."""


def operators(seed: int, numbers: Iterator[int], target: Target) -> Pieces:
    """The pieces of work of drawn operators."""
    machine = machine_of(target)
    for number in numbers:
        name, made, _ = drawn(seed, number)
        try:
            found = tasks(from_onnx(made), DEFAULT_CONTRACT, (), target)
        except PlicaError as error:
            print(f"{number} {name[:60]}: {error.diagnostics[0].code}", flush=True)
            continue
        spaces = [(task, space_of(task, machine)) for task in found]
        spaces.sort(key=lambda pair: -pair[1].size)
        for task, space in spaces[:PIECES]:
            yield f"{seed}/{number} {name} | {task.name}", task, space


def kernels(seed: int, path: Path, target: Target) -> Pieces:
    """The kernels of a network, in an order by a seed."""
    machine = machine_of(target)
    found = list(tasks(from_onnx(onnx.load(str(path))), DEFAULT_CONTRACT, (), target))
    Random(f"{seed} {path.name}").shuffle(found)
    for number, task in enumerate(found):
        yield f"{path.stem}/{number} {path.stem} | {task.name}", task, space_of(task, machine)


def is_product(task: Task) -> bool:
    """Whether some work is one contraction of two tensors, with what is done to its sums."""
    found = contraction(task.stages)
    return found is not None and found.weight is not None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--most", type=int, default=10**6, help="pieces of work")
    parser.add_argument("--least", type=int, default=LEAST_SIZE, help="points of a space")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--no-products", action="store_true")
    parser.add_argument("--below", type=float, default=1.0, help="the default is below this")
    asked = parser.parse_args()
    begun = time.monotonic()
    end = begun + asked.seconds
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    assert isinstance(target, Target)
    if asked.models:
        every = sorted(asked.models.glob("*.onnx"))
        pieces = kernels(asked.seed, every[asked.first % len(every)], target)
    else:
        pieces = operators(asked.seed, iter(range(asked.first, 10**6, asked.step)), target)
    asked.folder.mkdir(parents=True, exist_ok=True)
    collector = Collector(target)
    made = 0
    for name, task, space in pieces:
        if time.monotonic() > end or made >= asked.most:
            break
        if not space.sketches or space.size < asked.least:
            continue
        if asked.no_products and is_product(task):
            continue
        start = time.monotonic()
        work = collector.work(name, task, space, asked.each, end, below=asked.below)
        if work is None or len(work.costs) < asked.each // 3:
            continue
        made += 1
        file = asked.folder / f"{asked.seed}-{asked.first}-{asked.each}-{made}.gz"
        file.write_bytes(gzip.compress(pickle.dumps(work, protocol=5), 4))
        now = time.monotonic()
        rate = len(work.costs) / (now - start)
        better = work.costs[0] / min(work.costs)
        alike = pairwise_accuracy(-np.array(work.again), np.array(work.costs), NOISE)
        print(
            f"{now - begun:5.0f} s {name[:80]}: {len(work.costs)} of {space.size}, "
            f"{rate:.1f}/s, default {1e6 * work.costs[0]:.1f} us, {better:.2f}x the best, pairs of "
            f"the last run {alike:.3f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
