"""Distinct candidates: how many kernels of different code the space of each piece of work has.

space_sizes(module, contract, packs, target, most) -> SpaceSize of each kernel, one by one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random
from typing import Final

from attrs import frozen

from plica.analysis.statement import LoweringRefused
from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.lower.passes import lowered
from plica.core import digest
from plica.core.collector import paused
from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.rewrite.pack import Pack
from plica.runtime.error import PlicaError
from plica.schedule.replay import scheduled
from plica.search.space import Point, Space
from plica.search.target import tuning_of
from plica.search.task import tasks
from plica.search.tune import not_by_kernels

MAX_TRIES_PER_CANDIDATE: Final = (
    4  # points that are tried for each distinct candidate that is wanted, at most
)


@frozen
class SpaceSize:
    """The space of a kernel: its sketches, its points and how many distinct candidates it has."""

    kernel: str
    times: int
    sketches: int
    points: int
    distinct: int
    enough: bool  # whether as many were found as were wanted: there may be more

    def __str__(self) -> str:
        found = f"{self.distinct}{'+' if self.enough else ''}"
        return f"{self.times:5}  {self.sketches:8}  {self.points:10}  {found:>8}  {self.kernel}"


HEAD: Final = "times  sketches      points  distinct  kernel"  # the columns of a `SpaceSize`


def space_sizes(
    module: Module, contract: Contract, packs: Sequence[Pack], target: AnyTarget, most: int
) -> Iterator[SpaceSize]:
    """How large the space of each kernel of a module is; up to `most` candidates are lowered."""
    if (space_of := tuning_of(target).space) is None:
        raise not_by_kernels(target)
    for task in tasks(module, contract, packs, target):
        space = space_of(task, target)
        distinct = distinct_candidates(space, target, most)
        yield SpaceSize(
            task.name, task.weight, len(space.sketches), space.size, distinct, distinct >= most
        )


def distinct_candidates(space: Space, target: AnyTarget, most: int, seed: int = 0) -> int:
    """How many distinct lowered kernels a space has, at most `most`."""
    if not space.sketches:
        return 0
    passes = backend_of(target).lowering.passes
    found: set[str] = set()
    for point in _points(space, most, seed):
        if len(found) >= most:
            break
        try:
            with paused():
                kernel = scheduled(space.trace(point), space.sketches[point.sketch].kernel)
                found.add(digest(lowered(kernel, passes)))
        except (PlicaError, LoweringRefused):
            continue
    return len(found)


def _points(space: Space, most: int, seed: int) -> Iterator[Point]:
    """The points of a space, all of a small one."""
    if space.size <= MAX_TRIES_PER_CANDIDATE * most:
        return space.points()
    random = Random(seed)
    drawn = (space.drawn(random) for _ in range(MAX_TRIES_PER_CANDIDATE * most))
    return iter(dict.fromkeys(chain(space.defaults(), drawn)))
