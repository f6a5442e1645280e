"""Trials of policies: a policy run against a cost that is a function, for tests and comparisons.

>>> from plica.search.policy.example import SQUARE, cost
>>> from plica.search.policy.fold import Policy
>>> from plica.search.policy.grid import Grid
>>> len(observed(Policy(Grid(batch=7)), SQUARE, cost, trials=10, seed=0))
10
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plica.search.observation import Observation
from plica.search.policy.fold import Policy
from plica.search.space import Point, Space


def observed(
    policy: Policy[Any],  # what an explorer remembers is its own affair
    space: Space,
    cost: Callable[[Point], float | None],
    trials: int,
    seed: int,
) -> tuple[Observation, ...]:
    """What a policy tries, at most so often; a cost of None is a failure."""
    log = list[Observation]()
    state, points = policy.step(policy.begin(space, seed))
    while points and len(log) < trials:
        costs = [(each, cost(each)) for each in points[: trials - len(log)]]
        came = [Observation(each, found, "" if found else "crash") for each, found in costs]
        log += came
        state, points = policy.step(state, came)
    return tuple(log)


def best_of(
    policy: Policy[Any], space: Space, cost: Callable[[Point], float | None], trials: int, seed: int
) -> float:
    """The least cost that a policy finds."""
    costs = [each.cost for each in observed(policy, space, cost, trials, seed)]
    return min([each for each in costs if each is not None])
