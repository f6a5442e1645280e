"""Cost models, which predict from features how fast candidates are, and the quality of their order.

A model is a value. `fitted` returns one trained on candidates and their costs from scratch;
`scores` are higher for faster candidates, and only comparable with each other. Equal examples give
an equal model, bit by bit, in any process.

Two figures say how well scores order unseen candidates:

    pairwise     the share of pairs in the right order
    recall       the share of the best candidates among those with the best scores

>>> costs = np.array([1.0, 2.0, 3.0, 4.0])
>>> pairwise_accuracy(np.array([4.0, 3.0, 1.0, 2.0]), costs)
0.8333333333333334
>>> recall(np.array([4.0, 1.0, 3.0, 2.0]), costs, 2)
0.5
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
from attrs import frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs


class Model(Protocol):
    """What learns which candidates are fast."""

    kind: ClassVar[str]

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> Model:
        """The model that has learned from these candidates and nothing else.

        Costs are seconds, infinite where a trial failed.  Costs of one group compare, those of
        different groups (tasks) do not.
        """
        ...

    def scores(self, packs: Packs) -> Floats:
        """What it thinks of candidates: higher is faster."""
        ...

    def saved(self) -> bytes:
        """The model as data; `plica.search.model.loaded` reads it."""
        ...


# --- quality -----------------------------------------------------------------------------------


@frozen
class Quality:
    """How well candidates were ordered, and of how many that is said."""

    pairwise: float
    recall: float
    count: int


def pairwise_accuracy(scores: Floats, costs: Floats, noise: float = 0.0) -> float:
    """The part of pairs in order; those within the noise are left out, ties count half."""
    slower = costs[:, None] > costs[None] * (1 + noise)
    if not slower.any():
        return 1.0
    difference = scores[None] - scores[:, None]
    right = (difference > 0) + 0.5 * (difference == 0)
    return float(right[slower].mean())


def recall(scores: Floats, costs: Floats, most: int = 30) -> float:
    """The part of the best `most` that are among the `most` of the highest scores."""
    if not (most := min(most, len(costs))):
        return 1.0
    best = set(np.argsort(costs, kind="stable")[:most].tolist())
    chosen = np.argsort(-scores, kind="stable")[:most].tolist()
    return len(best.intersection(chosen)) / most


def quality(model: Model, packs: Packs, costs: Floats, noise: float = 0.0) -> Quality:
    """How well a model orders candidates of one task that it has not seen."""
    scores = model.scores(packs)
    accuracy = pairwise_accuracy(scores, costs, noise)
    return Quality(accuracy, recall(scores, costs), len(packs))


def held_out(  # noqa: PLR0917  # an experiment is these things
    model: Model, packs: Packs, costs: Floats, part: float = 0.3, seed: int = 0, noise: float = 0.0
) -> Quality:
    """The quality on a part of the candidates, chosen by the seed, after learning from the rest."""
    order = np.random.default_rng(seed).permutation(len(packs))
    cut = round(len(packs) * (1 - part))
    taught, asked = order[:cut], order[cut:]
    return quality(model.fitted(packs[taught], costs[taught]), packs[asked], costs[asked], noise)
