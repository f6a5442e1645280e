"""Transfer: a model that begins with what was learned from other work.

The old model's scores are the margin of the new one.  They count for 2 ** (-n / 64) after n
examples of the work at hand, and for nothing once that is below 0.05.

>>> from plica.search.model.boosted import PackSum
>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> old = PackSum().fitted(packs, 1.0 + rows[::-1, 0])
>>> model = Transferred(old, PackSum())
>>> int(model.scores(packs).argmax()), model.weight, model.fitted(packs, rows[:, 0] + 1).weight
(7, 1.0, 0.9170040432046712)
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from attrs import evolve, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.model import Model

HALVED: Final = 64
"""After so many examples the old model counts for half."""
LEAST: Final = 0.05
"""A model that counts for less does not count."""


@frozen(eq=False)
class Transferred:
    """A model of other work, one of this work, and how many examples the latter has seen."""

    kind: ClassVar[str] = "transferred"

    old: Model
    new: Model
    seen: int = 0

    @property
    def weight(self) -> float:
        """What the old model counts for."""
        return weight_after(self.seen)

    def fitted(
        self,
        packs: Packs,
        costs: Floats,
        groups: Integers | None = None,
        margin: Floats | None = None,
    ) -> Transferred:
        """As `Model.fitted` says; the old model stays as it is."""
        after = evolve(self, seen=len(packs))
        known = np.zeros(len(packs)) if margin is None else margin
        if after.weight:
            known = known + after.weight * _finite(self.old.scores(packs))
        return evolve(after, new=self.new.fitted(packs, costs, groups, known))

    def scores(self, packs: Packs) -> Floats:
        """Both together."""
        found = self.new.scores(packs)
        return found + self.weight * _finite(self.old.scores(packs)) if self.weight else found

    def saved(self) -> bytes:
        """The new model alone cannot be used, so both are saved."""
        from plica.search.model.saved import both  # it stands on all kinds of models

        return both(self.old, self.new, self.seen)


def weight_after(examples: int) -> float:
    """What an old model counts for after so many examples."""
    weight: float = 2.0 ** (-examples / HALVED)
    return weight if weight >= LEAST else 0.0


def _finite(scores: Floats) -> Floats:
    """Scores to calculate with: what has no rows is none better."""
    return np.where(np.isfinite(scores), scores, 0.0)
