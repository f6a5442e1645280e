"""Twins: candidates that the laws of schedule steps make equal; one is measured, all have its cost.

    twin_class(space, point)          what twins have in common, None where the schedule is illegal
    twins(space, points, classes)     the classes with new points, and the twins among these

Two schedules of one form are twins where their kernels differ in names and loops of one iteration
only (`plica.schedule.law`): a split by one, say, or steps on different loops in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from plica.core import digest
from plica.core.collector import paused
from plica.ir.loop import Kernel, Stages
from plica.schedule.law import kernel_class
from plica.search.lowered import LOWERED
from plica.search.space import Point, Space

Twins: TypeAlias = Callable[
    [Space, Sequence[Point], Mapping[str, Point]], tuple[dict[str, Point], dict[Point, Point]]
]
"""As `twins`."""


def twin_class(space: Space, point: Point) -> str | None:
    """What all twins of a point have in common, None where its schedule is illegal."""
    sketch = space.sketches[point.sketch]
    kernel = LOWERED.scheduled(space.trace(point), sketch.kernel)
    return None if kernel is None else f"{_digest(sketch.form)} {_class(kernel)}"


def twins(
    space: Space, points: Sequence[Point], classes: Mapping[str, Point]
) -> tuple[dict[str, Point], dict[Point, Point]]:
    """The first point of each class with those of new points, and of each twin the first."""
    known, found = dict(classes), dict[Point, Point]()
    for point in points:
        if (of := twin_class(space, point)) is not None:
            first = known.setdefault(of, point)
            if first != point:
                found[point] = first
    return known, found


@lru_cache(maxsize=256)
def _digest(form: Stages) -> str:
    return digest(form)


@lru_cache(maxsize=1024)
def _class(kernel: Kernel) -> str:
    with paused():
        return kernel_class(kernel)
