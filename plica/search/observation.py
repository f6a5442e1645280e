"""Observations: what is known about a point once it has been tried.

    Observation ::= Observation(point, cost, error, noise, twin)

The cost is in seconds, or None if the trial failed; then `error` names the kind (refused, build,
wrong, crash, timeout). The cost is the minimum over several repetitions; the noise is the relative
distance of their median from it.

>>> one, other = (Observation(Point(0, ((n,),)), cost) for n, cost in ((1, 2.0), (2, 1.5)))
>>> is_faster(other, one), is_faster(one, other)
(True, False)
>>> is_faster(Observation(other.point, 1.5, noise=0.5), Observation(one.point, 2.0, noise=0.5))
False
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import hypot
from typing import Final

from attrs import frozen

from plica.search.space import Point

REFUSED: Final = "refused"  # the error of an illegal schedule, which is no trial
CONFIDENT: Final = 1.645  # standard errors between two costs, for 5 % to be wrong
ERROR_OF_NOISE: Final = 0.5  # of the noise is above the standard error of the least of 10 repeats


@frozen
class Observation:
    """A point that was tried, and what came of it."""

    point: Point
    cost: float | None
    error: str = ""
    noise: float = 0.0
    twin: Point | None = None  # the same program, which was tried instead (`plica.search.twin`)

    @property
    def is_trial(self) -> bool:
        """Whether something was built and run for it."""
        return self.error != REFUSED and self.twin is None


def is_faster(one: Observation, other: Observation) -> bool:
    """Whether one is faster than another by more than chance explains."""
    if one.cost is None:
        return False
    if other.cost is None:
        return True
    spread = ERROR_OF_NOISE * hypot(one.noise * one.cost, other.noise * other.cost)
    return other.cost - one.cost > CONFIDENT * spread


def point_text(point: Point) -> str:
    """A point on one line, the same for equal points only.

    >>> point_text(Point(1, ((4, 8), (16,))))
    '[1,[[4,8],[16]]]'
    """
    return json.dumps([point.sketch, point.decisions], separators=(",", ":"))


def points_text(points: Iterable[Point]) -> str:
    """Some points, one on each line."""
    return "\n".join([point_text(point) for point in points])
