"""A space and a cost for tests and examples, and a policy run there: nothing is measured.

    SQUARE              two sketches of a kernel over 64 x 64: tiles of both loops, an unrolling
    cost(point)         what one might measure there: smooth, and least at one point
    observed(policy…)   what a policy tries against a cost that is a function

>>> SQUARE.size, SQUARE.default
(196, Point(sketch=0, decisions=((4, 16), (16, 4), (2,))))
>>> best = min(SQUARE.points(), key=cost)
>>> best, cost(best)
(Point(sketch=0, decisions=((8, 8), (4, 16), (2,))), 1.0)
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any, Final

from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text
from plica.schedule import (
    block,
    do,
    loops,
    reorder,
    sample_categorical,
    sample_tile,
    split,
    trace_of,
)
from plica.schedule.do import Body
from plica.search.observation import Observation
from plica.search.policy.fold import Policy
from plica.search.space import Point, Space, sketch

DOUBLED: Final = """
from plica.script import Buffer, block, f32, grid
import plica

@plica.kernel
def doubled(x: Buffer[(64, 64), f32], y: Buffer[(64, 64), f32]):
    for i, j in grid(64, 64):
        with block("out", spatial=(i, j)):
            y[i, j] = x[i, j] * 2.0
"""


@do
def tiled(*, unrolled: bool) -> Body:
    """Tiles of both loops; with an unrolling or not."""
    i, j = yield loops((yield block("out")))
    i0, i1 = yield split(i, sample_tile(2, max_inner=64))
    j0, j1 = yield split(j, sample_tile(2, max_inner=64))
    yield reorder(i0, j0, i1, j1)
    if unrolled:
        yield sample_categorical((0, 1, 2))


def _square() -> Space:
    kernel = from_text(DOUBLED).values[0]
    assert isinstance(kernel, Kernel)
    sketches = [
        sketch(name, kernel, trace_of(tiled(unrolled=name == "unrolled"), kernel))
        for name in ("unrolled", "plain")
    ]
    return Space(tuple(sketches))


SQUARE: Final = _square()


def cost(point: Point) -> float:
    """One at the best point, more for every step away from it."""
    far = sum(
        (log2(decision[-1]) - log2(best)) ** 2
        for decision, best in zip(point.decisions, (8, 16), strict=False)
    )
    unroll = abs(point.decisions[2][0] - 2) if len(point.decisions) > 2 else 0
    return 1.0 + 0.25 * far + 0.1 * unroll + 0.5 * point.sketch


def observed(
    policy: Policy[Any],  # what an explorer remembers is its own affair
    space: Space,
    cost: Callable[[Point], float | None],
    trials: int,
    seed: int,
) -> tuple[Observation, ...]:
    """The trials of a policy, up to a number; a cost of None is a failure."""
    log = list[Observation]()
    state, points = policy.step(policy.begin(space, seed))
    while points and len(log) < trials:
        costs = [(point, cost(point)) for point in points[: trials - len(log)]]
        came = [Observation(point, found, "" if found else "crash") for point, found in costs]
        log += came
        state, points = policy.step(state, came)
    return tuple(log)


def best_of(
    policy: Policy[Any], space: Space, cost: Callable[[Point], float | None], trials: int, seed: int
) -> float:
    """The least cost that a policy finds."""
    costs = [observation.cost for observation in observed(policy, space, cost, trials, seed)]
    return min([each for each in costs if each is not None])
