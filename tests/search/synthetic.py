"""Tuning without measuring: tasks whose costs are functions, and a program that tunes them.

    python -m tests.search.synthetic DATABASE TRIALS SEED PAUSE [policy]

The pause is slept before every trial, so that whoever wants to kill the program has the time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.type.dtype import f32
from plica.schedule.form import Facts
from plica.search.course import TuningSubject
from plica.search.measure import Measured, SpaceWork
from plica.search.policy.example import SQUARE, cost
from plica.search.policy.fold import index_of
from plica.search.record.database import Database
from plica.search.space import Point, Space
from plica.search.tune_loop import Run, tuned
from tests.search.policy.every import POLICIES

_X = placeholder("x", (64, 64), f32)
UNKNOWN = Facts((False,))
NOTHING = stages((_X,), (stage("y", (64, 64), lambda i, j: _X[i, j]),))


@frozen(eq=False)
class Task:
    """Work that nobody does."""

    name: str
    weight: int
    stages: Stages = NOTHING
    facts: Facts = UNKNOWN

    @property
    def key(self) -> str:
        return f"synthetic-{self.name}"


class Synthetic:
    """A measurer that reckons; some points are refused, some crash."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.measured = list[tuple[str, Point]]()

    def measure(
        self,
        task: SpaceWork,
        space: Space,
        points: Sequence[Point],
        arrived: Callable[[Measured], None] | None = None,
    ) -> tuple[Measured, ...]:
        """What comes of points; they arrive in another order than they were asked for."""
        assert isinstance(task, Task)
        found = dict[Point, Measured]()
        for each in reversed(points):
            time.sleep(self.pause)
            self.measured.append((task.name, each))
            found[each] = came_of(task, each)
            if arrived is not None:
                arrived(found[each])
        return tuple([found[each] for each in points])


class Judged(Synthetic):
    """A measurer that can compare, too; there the last one wins."""

    def finals(
        self, task: SpaceWork, space: Space, points: Sequence[Point], rounds: int = 0
    ) -> tuple[Measured, ...]:
        """The points with other times than before."""
        return tuple([Measured("ok", (1.0 / (n + 1),) * 5, point=e) for n, e in enumerate(points)])


def came_of(task: Task, point: Point) -> Measured:
    """What comes of a point."""
    number = index_of(SQUARE, point)
    stages = {"compile": 0.1, "time": 0.2}
    if number % 11 == 0:
        return Measured("refused", message="replay: no", point=point)
    if number % 13 == 0:
        return Measured("crash", stages=stages, message="run: signal 11", point=point)
    time_ = task.weight * 1e-3 * cost(point)
    return Measured("ok", (time_, 1.01 * time_), 0.01, stages, point=point)


SUBJECTS = tuple(
    [TuningSubject(Task(name, weight), SQUARE) for name, weight in (("a", 1), ("b", 4))]
)


def no_twins(
    space: Space, points: Sequence[Point], classes: Mapping[str, Point]
) -> tuple[dict[str, Point], dict[Point, Point]]:
    """No two points are the same: costs here follow from decisions, not from kernels."""
    return {}, {}


RUN = Run(
    POLICIES["guided"], Synthetic(), Database(), "nowhere", versions=(("plica", "0"),),
    twins=no_twins,
)  # fmt: skip


def main(path: str, trials: str, seed: str, pause: str, policy: str = "guided") -> None:
    """Tune both tasks."""
    with Database(path) as database:
        run = evolve(
            RUN,
            policy=POLICIES[policy],
            measurer=Synthetic(float(pause)),
            database=database,
            seed=int(seed),
        )
        tuned(SUBJECTS, run, int(trials))


if __name__ == "__main__":
    main(*sys.argv[1:])
