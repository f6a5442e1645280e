"""Adversarial search: data on which the sides of a rule lie as far apart as they can be brought.

>>> [word for word, _ in MOVES][:3]
['negate', 'double', 'next']
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import EvaluationError
from plica.ir.type import dtype
from plica.rewrite.check.compare import distance
from plica.rewrite.check.trial import Inputs, SidesDiffer, Trial
from plica.rewrite.check.widen import array_in_f64

Array: TypeAlias = np.ndarray[Any, Any]
Move: TypeAlias = Callable[[Array, int, random.Random], Any]  # a new value for one element

CLIMB_STEPS: Final = 30
"""Changes tried on one instance."""


def climb(trial: Trial, start: Inputs, seed: int, steps: int = CLIMB_STEPS) -> SidesDiffer | None:
    """The final state if the sides differ, or None if they never did."""
    places = [i for i, each in enumerate(start) if each.size and dtype(each.dtype).is_float]
    if not places:
        return None
    source = random.Random(seed)
    best, top = list(start), height(trial, start)
    for _ in range(steps):
        inputs = _changed(best, places, source)
        if isinstance(found := trial.outcome(inputs), SidesDiffer):
            return found
        here = height(trial, inputs)
        if here >= top:
            best, top = inputs, here
    return None


def height(trial: Trial, inputs: Inputs) -> float:
    """How far the sides are apart, or how much of the left side is rounding."""
    try:
        found = trial.values(inputs)
        apart = distance(found[0], found[1])
        if apart > 0 or trial.wide is None:
            return 1.0 + apart if apart > 0 else 0.0
        wide = trial.wide.values([array_in_f64(each) for each in inputs])
    except EvaluationError:
        return 0.0
    return min(1.0, distance(found[0], wide[0]) * 2.0**20)


def _changed(inputs: list[Array], places: list[int], source: random.Random) -> list[Array]:
    """The inputs with one element changed, or a few."""
    made = list(inputs)
    for _ in range(source.choice((1, 1, 2, 3))):
        at = source.choice(places)
        array = made[at] = made[at].copy()
        flat = array.reshape(-1)
        element = source.randrange(flat.size)
        if source.random() < 0.3:  # what another place holds
            other = made[source.choice(places)].reshape(-1)
            value = other[source.randrange(other.size)]
        else:
            value = source.choice(MOVES)[1](flat, element, source)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            flat[element] = np.asarray(value).astype(array.dtype)
    return made


def _next(flat: Array, at: int, source: random.Random) -> Any:
    """The number one step of its dtype away."""
    step = 2.0 ** (1 - dtype(flat.dtype).row.digits)
    return float(flat[at]) * (1 + source.choice((-step, step)))


MOVES: Final[tuple[tuple[str, Move], ...]] = (
    ("negate", lambda flat, at, source: -float(flat[at])),
    ("double", lambda flat, at, source: float(flat[at]) * 2.0 ** source.randint(-6, 6)),
    ("next", _next),
    ("fresh", lambda flat, at, source: source.uniform(-2, 2)),
    ("swap with opposite", lambda flat, at, source: -float(flat[source.randrange(flat.size)])),
)
"""Changes of one element, by name."""
