"""Models: what tells from features how fast candidates are, before they are run.

A model is a value. `fitted` returns one trained on candidates and their costs from scratch;
`scores` are higher for faster candidates, and only comparable with each other. Equal examples give
an equal model, bit by bit, in any process.

>>> speeds(np.array([2.0, 4.0, np.inf]), None).tolist()
[1.0, 0.5, 0.0]
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

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


def speeds(costs: Floats, groups: Integers | None) -> Floats:
    """Speed as a part of the best of the same group, 0 for what failed."""
    costs = np.asarray(costs, dtype=np.float64)
    usable = np.where(np.isfinite(costs) & (costs > 0), costs, np.inf)
    if groups is None:
        groups = np.zeros(len(costs), dtype=np.int64)
    found = np.zeros(len(costs))
    for group in np.unique(groups):
        mine = groups == group
        best = usable[mine].min()
        if np.isfinite(best):
            found[mine] = best / usable[mine]
    return found
