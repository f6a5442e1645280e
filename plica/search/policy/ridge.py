"""Ridge: the least model that learns, quadratic in the features of each point.

It serves where no learned model is wanted: in tests, in examples, and as the line that a better
model has to beat.  A pack's features are summed, as its stores are in the larger models.

>>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
>>> packs = Packs(x, np.arange(4), 4)
>>> scores = Ridge().fitted(packs, np.array([4.0, 2.0, 1.0, 2.0])).scores(packs)
>>> int(scores.argmax())
2
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen

from plica.search.feature.packs import Packs
from plica.search.policy.cost_judge import Array

FAILED: Final = 4.0  # a trial that failed counts as this many times the slowest one


@frozen(eq=False)
class Ridge:
    """Weights, empty before training, and their regularisation."""

    weights: Array | None = None
    hold: float = 1e-3

    def fitted(self, packs: Packs, costs: Array) -> Ridge:
        """The least squares of the logarithm of speed."""
        found = _squares(packs)
        slow = FAILED * costs[np.isfinite(costs)].max(initial=0.0)
        speed = -np.log(np.maximum(np.where(np.isfinite(costs), costs, slow), 1e-30))
        system = found.T @ found + self.hold * np.eye(found.shape[1])
        return Ridge(np.linalg.solve(system, found.T @ speed), self.hold)

    def scores(self, packs: Packs) -> Array:
        """Higher is faster; all alike before it has learned."""
        found = _squares(packs)
        if self.weights is None:
            return np.zeros(len(found))
        scores: Array = found @ self.weights
        return scores


def _squares(packs: Packs) -> Array:
    """Each pack as one row: a constant, the features, their products."""
    rows = packs.rows
    summed = np.zeros((packs.count, rows.shape[1]))
    np.add.at(summed, packs.owner, rows)
    above = np.triu_indices(rows.shape[1])
    products = summed[:, above[0]] * summed[:, above[1]]
    return np.concatenate([np.ones((packs.count, 1)), summed, products], axis=1)
