"""Ranked: boosted trees that only rank candidates.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = Ranked(rounds=20).fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax())
7
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from attrs import asdict, evolve, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.boosted import Trees, checked, predicted, settings_of, tree_library
from plica.search.model.file import File, written
from plica.search.model.model import speeds


@frozen(eq=False)
class Ranked:
    """Trees, none before it has learned."""

    kind: ClassVar[str] = "ranked"

    rounds: int = 150
    depth: int = 6
    rate: float = 0.15
    threads: int = 1
    seed: int = 0
    booster: bytes = b""

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> Ranked:
        """As `Model.fitted` says."""
        legal = np.flatnonzero(packs.is_legal)
        if len(legal) < 2:
            return evolve(self, booster=b"")
        library = tree_library()
        wanted = speeds(costs, groups)[legal]
        which = np.zeros(len(legal), np.int64) if groups is None else groups[legal]
        order = np.argsort(which, kind="stable")
        _, groups_in_order = np.unique(which[order], return_inverse=True)
        data = library.QuantileDMatrix(
            joined(packs)[legal][order],
            wanted[order],
            qid=groups_in_order,
            max_bin=64,
            nthread=self.threads,
        )
        trees = Trees(self.rounds, self.depth, self.rate, threads=self.threads, seed=self.seed)
        parameters = trees.parameters(
            objective="rank:pairwise",
            lambdarank_pair_method="mean",
            lambdarank_num_pair_per_sample=8,
        )
        found = library.train(parameters, data, trees.rounds)
        return evolve(self, booster=bytes(found.save_raw("ubj")))

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster; all alike before it has learned, nothing is worse than no rows."""
        if not self.booster or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        array = predicted(self.booster, joined(packs), self.threads)
        return np.where(packs.is_legal, array, -np.inf)

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        fields = asdict(self)
        blob = fields.pop("booster")
        return written(self.kind, fields, {}, blob)

    @staticmethod
    def from_file(of: File) -> Ranked:
        """The model of a file; raises `Malformed`."""
        return Ranked(**settings_of(of, Ranked()), booster=checked(of.blob))


def joined(packs: Packs) -> Floats:
    """One row for each candidate: the largest row of it, by the sum of it, and the sum of all."""
    rows, owner = packs.rows, packs.owner
    width = rows.shape[1]
    array = np.zeros((packs.count, 2 * width))
    # The heaviest comes last within its candidate, and is written last.
    order = np.lexsort((rows.sum(axis=1), owner))
    array[owner[order], :width] = rows[order]
    starts = np.searchsorted(owner, np.arange(packs.count))
    mine = np.flatnonzero(packs.is_legal)
    if len(mine):
        array[mine, width:] = np.add.reduceat(rows, starts[mine], axis=0)
    return array
