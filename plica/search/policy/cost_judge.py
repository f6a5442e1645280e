"""Judges: the scores that a model gives to points before they are tried.

    Features     (space, points) -> packs: the rows of features of each point
    Learner      fitted(packs, costs) -> Learner;  scores(packs) -> higher is faster

>>> from plica.search.policy.example import SQUARE
>>> packs = knobs(SQUARE, (SQUARE.default,))
>>> packs.rows.shape, packs.owner.tolist()
((1, 7), [0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from attrs import frozen

from plica.schedule.default.machine import Machine
from plica.search.feature.packs import Packs, SpaceFeaturiser
from plica.search.policy.fold import ObservedSpace
from plica.search.space import Point, Space

Array: TypeAlias = np.ndarray[Any, Any]
Features: TypeAlias = Callable[[Space, Sequence[Point]], Packs]
Score: TypeAlias = Callable[[Sequence[Point]], Array]  # higher is faster; -inf is illegal


class Learner(Protocol):
    """What learns which points are fast: any of the models of `plica.search.model`."""

    def fitted(self, packs: Packs, costs: Array) -> Learner:
        """Trained on these points; the cost of failures is infinite."""
        ...

    def scores(self, packs: Packs) -> Array:
        """What it thinks of points: higher is faster."""
        ...


@runtime_checkable
class Doubting(Protocol):
    """What also knows of which points it knows little."""

    def hopeful(self, packs: Packs, taken: Sequence[int], count: int) -> list[int]:
        """A number of points that may be fast given the uncertainty, besides those already
        taken."""
        ...


@frozen(eq=False)
class CostJudge:
    """A model that learns from observations; judges that decide differently differ in name."""

    name: str
    model: Learner
    features: Features
    cycles: Callable[[Packs], Array] | None = None  # an estimate without measuring

    def after(self, known: ObservedSpace) -> Score:
        """The opinion after everything known."""
        return self.opinion(self.taught(known), known)

    def opinion(self, model: Learner, known: ObservedSpace) -> Score:
        """A model's scores of points of a space."""
        return self._score(known.space, model, self._most(known))

    def hopes(
        self,
        model: Learner,
        space: Space,
        points: Sequence[Point],
        taken: Sequence[Point],
        count: int,
    ) -> list[Point]:
        """A number of points that may be fast given a model's uncertainty, besides those already
        taken; empty if the model has none."""
        if not isinstance(model, Doubting) or not points or not count:
            return []
        every = [*dict.fromkeys([*taken, *points])]
        packs = self.features(space, every)
        legal = np.flatnonzero(packs.is_legal)
        chosen = model.hopeful(packs[legal], range(int((legal < len(taken)).sum())), count)
        return [every[legal[each]] for each in chosen]

    def taught(self, known: ObservedSpace) -> Learner:
        """The model after all observations; refused points teach nothing."""
        tried = [observation for observation in known.taken.values() if observation.is_trial]
        model = self.model
        if known.best is not None:
            costs = [np.inf if each.cost is None else each.cost for each in tried]
            packs = self.features(known.space, [observation.point for observation in tried])
            legal = np.flatnonzero(packs.is_legal)
            if len(legal):
                model = model.fitted(packs[legal], np.array(costs)[legal])
        return model

    def before(self, space: Space) -> Score:
        """The opinion of a model that has seen nothing here."""
        return self._score(space, self.model)

    def _most(self, known: ObservedSpace) -> float:
        """How many cycles a point may be estimated to take that is worth a trial."""
        if self.cycles is None or known.best is None:
            return np.inf
        packs = self.features(known.space, (known.best.point,))
        return BEYOND * float(self.cycles(packs)[0]) if packs.is_legal[0] else np.inf

    def _score(self, space: Space, model: Learner, most: float = np.inf) -> Score:
        def score(points: Sequence[Point]) -> Array:
            if not points:
                return np.zeros(0)
            packs = self.features(space, points)
            legal = np.flatnonzero(packs.is_legal)
            array = np.full(len(points), -np.inf)
            if len(legal):
                array[legal] = model.scores(packs[legal])
            if self.cycles is not None and most < np.inf:
                array[self.cycles(packs) > most] = -np.inf
            return array

        return score


def knobs(space: Space, points: Sequence[Point]) -> Packs:
    """The sketch of a point, one-hot, and the logarithms of its decisions."""
    sketches = len(space.sketches)
    width = max(sum(map(len, sketch.default)) for sketch in space.sketches)
    rows = np.zeros((len(points), sketches + width))
    for row, point in zip(rows, points, strict=True):
        row[point.sketch] = 1
        numbers = [number for decision in point.decisions for number in decision]
        row[sketches : sketches + len(numbers)] = np.log2(np.abs(np.array(numbers, float)) + 1)
    return Packs(rows, np.arange(len(points)), len(points))


@lru_cache(maxsize=8)
def stores(machine: Machine) -> Features:
    """The features of the stores of kernels, cached per space."""

    @lru_cache(maxsize=64)
    def estimated(space: Space) -> tuple[SpaceFeaturiser, dict[Point, Array]]:
        return SpaceFeaturiser(space, machine), {}

    def features(space: Space, points: Sequence[Point]) -> Packs:
        featuriser, kept = estimated(space)
        if missing := [each for each in dict.fromkeys(points) if each not in kept]:
            if len(kept) > MAX_CACHED_POINTS:
                kept.clear()
            packs = featuriser.of(missing)
            starts = np.searchsorted(packs.owner, np.arange(len(missing) + 1))
            for n, each in enumerate(missing):
                kept[each] = packs.rows[starts[n] : starts[n + 1]]
        return Packs.of([kept[point] for point in points])

    return features


BEYOND: Final = 4.0  # times the estimated cycles of the best are never fast (3 was the most seen)
MAX_CACHED_POINTS: Final = 1 << 16  # points of a space whose features are kept
