"""What searches are compared on: the work, measurements that are shared, and a last comparison.

WORK, ALONE          three convolutions of ResNet-18 and a product; a product for some tables
Sharing              a measurer that measures no point twice, whoever asks
Kept                 parts of a result in a file, each made once: what was interrupted goes on
judged(courses, …)   the courses with the times of a last comparison in place of single ones
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, frozen

from benchmarks.cliffs import drawn
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.core.name import Name
from plica.frontend.onnx import from_onnx
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.course import Course, TuningSubject
from plica.search.measure import LocalMeasurer, Measured, SpaceWork
from plica.search.measure.local import Arrived
from plica.search.observation import Observation, point_text
from plica.search.policy.fold import Policy
from plica.search.record.database import Database
from plica.search.record.record import Record, record
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.target import fingerprint, versions
from plica.search.task import tasks
from plica.search.tune_loop import Run, tuned

Courses = Mapping[str, list[Course]]
"""The courses of one piece of work, a list of seeds for each policy."""

FINALISTS = 16
"""How many points of a task are compared in the end, besides the default."""

ROUNDS = 30
"""How often each of them is timed: the least of this many is hardly ever disturbed."""

SHARED = "shared"
T = TypeVar("T")


def conv(channels: int, outputs: int, size: int, window: int, stride: int) -> Module:
    """A convolution and relu, as in the residual network."""
    random = np.random.default_rng(0)
    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    weight = const(random.standard_normal((outputs, channels, window, window)).astype(np.float32))
    attrs = (("dilation", 1), ("groups", 1), ("padding", window // 2), ("strides", stride))
    return _main(x, Apply("nn.relu", (Apply("nn.conv", (x, weight), attrs),)))


def gemm(size: int) -> Module:
    """A product with a constant."""
    x = Var(Name("x"), tensor((size, size), "f32"))
    random = np.random.default_rng(0)
    weight = const(random.standard_normal((size, size)).astype(np.float32))
    return _main(x, Apply("matmul", (x, weight)))


def _main(x: Var, body: Any) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, body)}, main)


# fmt: off
WORK: dict[str, Callable[[], Module]] = {
    "conv 64x56x56 3x3":      lambda: conv(64, 64, 56, 3, 1),
    "conv 128x28x28 3x3":     lambda: conv(128, 128, 28, 3, 1),
    "conv 128x28x28 3x3 /2":  lambda: conv(128, 256, 28, 3, 2),
    "gemm 512":               lambda: gemm(512),
}
ALONE: dict[str, Callable[[], Module]] = {"gemm 1024": lambda: gemm(1024)}
# fmt: on


def subject(name: str, target: Target) -> TuningSubject:
    """The work of a module that has one piece of it, and its space: convolutions as they are, for
    their transforms leave next to nothing to decide.  SEED/NUMBER is an operator that `cliffs.py`
    draws: the piece of it with the largest space."""
    if name in {**WORK, **ALONE}:
        (found,) = tasks({**WORK, **ALONE}[name](), reassociates, (), target)
        return TuningSubject(evolve(found, name=name), space_of(found, machine_of(target)))
    seed, _, number = name.partition("/")
    _, made, _ = drawn(int(seed), int(number))
    every = tasks(from_onnx(made), DEFAULT_CONTRACT, (), target)
    spaces = [(each, space_of(each, machine_of(target))) for each in every]
    largest, space = max(spaces, key=lambda pair: pair[1].size)
    return TuningSubject(evolve(largest, name=f"{name} {largest.name}"), space)


class Sharing:
    """A measurer that measures no point twice, whoever asks; a point costs all of them the same."""

    def __init__(self, inner: LocalMeasurer, database: Database, target: str) -> None:
        self.inner, self.database, self.target = inner, database, target
        self.versions = versions()
        self.known = {
            (each.key, each.form, each.trace_json): each
            for each in database
            if each.target == target and each.versions == self.versions and each.policy == SHARED
        }
        self.before = len(self.known)
        """How many were known from an earlier run."""

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """What came of points, or comes of them now."""
        key: str = getattr(task, "key")  # noqa: B009  # what measuring asks for has none
        places = {
            each: (key, space.sketches[each.sketch].name, space.trace(each).to_json())
            for each in points
        }
        missing = [each for each in points if places[each] not in self.known]

        def kept(of: Measured) -> None:
            made = record(
                key,
                self.target,
                places[of.point][2],
                places[of.point][1],
                of.times,
                noise=of.noise,
                versions=self.versions,
                error="" if of.status == "ok" else of.status,
                policy=SHARED,
                message=of.message,
            )
            self.database.put(made)
            self.known[places[of.point]] = made

        if missing:
            self.inner.measure(task, space, missing, kept)
        found = tuple([_measured(each, self.known[places[each]]) for each in points])
        for each in found:
            if arrived is not None:
                arrived(each)
        return found


def _measured(point: Point, of: Record) -> Measured:
    status: Any = of.error or "ok"
    return Measured(status, of.costs, of.noise, {}, of.message, point=point)


class Kept:
    """Parts of a result in a file, by name; another machine or another version begins anew."""

    def __init__(self, path: Path, target: str) -> None:
        self.path = path
        self._whose = [target, [list(each) for each in versions()]]
        self._parts: dict[str, Any] = {}
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            self._parts = found["parts"] if found.get("whose") == self._whose else {}

    def once(self, name: str, make: Callable[[], T], asked: object = None) -> T:
        """A part that is plain data, made where it is not there, or was asked for otherwise."""
        known = self._parts.get(name)
        if known is not None and known["asked"] == asked:
            value: T = known["value"]
            return value
        self.put(name, made := make(), asked)
        return made

    def put(self, name: str, value: object, asked: object = None) -> None:
        """Keep a part."""
        self._parts[name] = {"asked": asked, "value": value}
        text = json.dumps({"whose": self._whose, "parts": self._parts}, indent=1)
        beside = self.path.with_suffix(".part")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self.path)


@frozen(eq=False)
class Bench:
    """Where everything is measured."""

    target: Target
    shared: Sharing
    kept: Kept
    trials: int
    seeds: int

    def courses(
        self, of: TuningSubject, policy: Policy[Any], trials: int = 0, seeds: int = 0
    ) -> list[Course]:
        """What a policy finds, for each seed."""
        found = list[Course]()
        for seed in range(seeds or self.seeds):
            run = Run(policy, self.shared, Database(), fingerprint(self.target), seed, versions())
            found += tuned([of], run, trials or self.trials, finals=False)
        return found


def costs_of(courses: Courses) -> dict[Point, float]:
    """What every point cost that any of some searches tried."""
    return {
        seen.point: seen.cost
        for each in courses.values()
        for course in each
        for seen in course.observations
        if seen.cost is not None
    }


def judged(name: str, courses: Courses, bench: Bench) -> dict[str, list[Course]]:
    """The courses with better times: the best points of all, and the default, are timed in turns.

    What was not compared keeps its own time, times how much slower the machine was in the end.
    """
    of = next(iter(courses.values()))[0].subject
    costs = costs_of(courses)
    best = sorted(costs, key=lambda each: costs[each])[:FINALISTS]
    points = list(dict.fromkeys([of.space.default, *best]))

    def compared() -> list[float | None]:
        timed = bench.shared.inner.finals(of.task, of.space, points, ROUNDS)
        return [each.cost for each in timed]

    found = bench.kept.once(f"last/{name}", compared, [point_text(each) for each in points])
    times = {p: time for p, time in zip(points, found, strict=True) if time is not None}
    drift = median([times[each] / costs[each] for each in times if each in costs])
    truth = {each: times.get(each, cost * drift) for each, cost in costs.items()}
    return {kind: [_with(each, truth) for each in list_] for kind, list_ in courses.items()}


def _with(course: Course, truth: Mapping[Point, float]) -> Course:
    seen: list[Observation] = [
        evolve(each, cost=truth[each.point]) if each.cost is not None else each
        for each in course.observations
    ]
    return evolve(course, observations=tuple(seen))
