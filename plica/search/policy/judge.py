"""Judges: what a model thinks of points before they are tried.

A judge is a model, and the numbers by which it tells points apart.  It learns from everything
known, from the beginning at every round: so its opinion is a function of the log.

    Features     (space, points) -> rows, and which rows belong to which point
    Model        fitted(packs, costs) -> Model;  scores(packs) -> higher is faster

`knobs` are the plainest features: the sketch and the numbers that are decided, one row a point.

>>> from plica.search.policy.example import SQUARE
>>> rows, of = knobs(SQUARE, (SQUARE.default,))
>>> rows.shape, of.tolist()
((1, 7), [0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from attrs import frozen

from plica.search.policy.fold import Known
from plica.search.space import Point, Space

Array: TypeAlias = np.ndarray[Any, Any]
Packs: TypeAlias = tuple[Array, Array]
"""Rows of features, and the number of the point that each row belongs to."""

Features: TypeAlias = Callable[[Space, Sequence[Point]], Packs]
Score: TypeAlias = Callable[[Sequence[Point]], Array]
"""Higher is faster."""

FAILED = 4.0
"""A trial that failed counts as so many times the slowest one."""


class Model(Protocol):
    """What learns which points are fast; a value."""

    def fitted(self, packs: Packs, costs: Array) -> Model:
        """The model that has learned from these points."""
        ...

    def scores(self, packs: Packs) -> Array:
        """What it thinks of points: higher is faster."""
        ...


@frozen(eq=False)
class Judge:
    """A model that learns from what is known."""

    name: str
    model: Model
    features: Features

    def after(self, known: Known) -> Score:
        """The opinion after everything known; what was refused teaches nothing, for it is no
        schedule."""
        tried = [each for each in known.taken.values() if each.is_trial]
        worked = [each.cost for each in tried if each.cost is not None]
        model = self.model
        if worked:
            slow = FAILED * max(worked)
            costs = [slow if each.cost is None else each.cost for each in tried]
            packs = self.features(known.space, [each.point for each in tried])
            model = model.fitted(packs, np.array(costs))
        return self._score(known.space, model)

    def before(self, space: Space) -> Score:
        """The opinion of a model that has seen nothing here."""
        return self._score(space, self.model)

    def _score(self, space: Space, model: Model) -> Score:
        def score(points: Sequence[Point]) -> Array:
            if not points:
                return np.zeros(0)
            found: Array = model.scores(self.features(space, points))
            return found

        return score


def knobs(space: Space, points: Sequence[Point]) -> Packs:
    """The sketch of a point, one-hot, and the logarithms of what is decided."""
    sketches = len(space.sketches)
    width = max(sum(map(len, each.default)) for each in space.sketches)
    rows = np.zeros((len(points), sketches + width))
    for row, point in zip(rows, points, strict=True):
        row[point.sketch] = 1
        numbers = [number for decision in point.decisions for number in decision]
        row[sketches : sketches + len(numbers)] = np.log2(np.abs(np.array(numbers, float)) + 1)
    return rows, np.arange(len(points))
