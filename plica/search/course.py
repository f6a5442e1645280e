"""Courses: a piece of work to tune, its space, and the progress of its search.

TuningSubject(task, space)     a piece of work, and the space of its schedules
Course                         what was observed, what is best, how long each stage took
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Protocol, TypeAlias

from attrs import field, frozen

from plica.codegen.operation_count import operations
from plica.ir.type import known
from plica.search.measure import SpaceWork
from plica.search.observation import Observation
from plica.search.space import Point, Space


class TuningPiece(SpaceWork, Protocol):
    """A task as the loop sees it: work with a digest, a name, and a number of occurrences."""

    @property
    def key(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> int: ...


@frozen(eq=False, slots=False)
class TuningSubject:
    """A piece of work and its space, or the first sketch alone and what makes the whole space."""

    task: TuningPiece
    space: Space
    grow: Callable[[], Space] | None = None

    @cached_property
    def whole(self) -> TuningSubject:
        """The subject with all of its space."""
        return self if self.grow is None else TuningSubject(self.task, self.grow())

    @cached_property
    def operations(self) -> float:
        """How much is computed, about."""
        return float(operations(self.space.sketches[0].kernel)) if self.space.sketches else 0.0

    @cached_property
    def bytes(self) -> float:
        """The bytes read and written, each element once; open sizes count as zero."""
        params = self.space.sketches[0].kernel.params if self.space.sketches else ()
        sizes = [[known(size) or 0 for size in param.shape] for param in params]
        pairs = zip(sizes, params, strict=True)
        return float(sum(prod(size) * each.dtype.bytes for size, each in pairs))


@frozen(eq=False)
class Course:
    """The progress of the search for one piece of work."""

    subject: TuningSubject
    observations: tuple[Observation, ...] = ()
    batches: tuple[float | None, ...] = ()  # the best cost after each batch
    stages: dict[str, float] = field(factory=dict[str, float])  # seconds of each, measured here
    measured: int = 0  # how many trials that were
    winner: Observation | None = None  # what won the last comparison, if there was one
    stayed: float | None = None  # what the default cost in that comparison
    broken: str = ""  # how the default failed, where nothing was searched for that

    @property
    def trials(self) -> int:
        """How many points were built and run."""
        return sum(observation.is_trial for observation in self.observations)

    @property
    def twins(self) -> int:
        """How many points took the cost of one that is the same program."""
        return sum(observation.twin is not None for observation in self.observations)

    @property
    def best(self) -> Observation | None:
        """The fastest point that was found."""
        worked = [observation for observation in self.observations if observation.cost is not None]
        return self.winner or min(worked, key=lambda each: each.cost or 0.0, default=None)

    @property
    def first(self) -> float | None:
        """The time of the default, if measured; from the final comparison, if there was one."""
        if self.stayed is not None:
            return self.stayed
        return self.cost_of(self.subject.space.default)

    def cost_of(self, point: Point | None) -> float | None:
        """The time of a point's first trial, if any."""
        return next((e.cost for e in self.observations if e.point == point), None)

    @property
    def least(self) -> float | None:
        """The time of the fastest point."""
        return None if self.best is None else self.best.cost

    @property
    def curve(self) -> tuple[float | None, ...]:
        """The best cost after each trial."""
        found = list[float | None]()
        best: float | None = None
        for observation in self.observations:
            if observation.cost is not None:
                best = observation.cost if best is None else min(best, observation.cost)
            if observation.is_trial:
                found.append(best)
        return tuple(found)

    @property
    def errors(self) -> dict[str, int]:
        """How many trials failed, by how."""
        found = dict[str, int]()
        for observation in self.observations:
            if observation.error:
                found[observation.error] = found.get(observation.error, 0) + 1
        return dict(sorted(found.items()))


Listener: TypeAlias = Callable[[Sequence[Course], int, int], None]
"""Called with all courses, the index of the changed one, and the number of trials spent."""
