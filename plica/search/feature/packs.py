"""Packs: the feature rows of many candidates in one array, one for each store of a candidate.

A candidate without rows is an illegal schedule.

>>> packs = Packs.of([np.ones((2, 3)), np.zeros((1, 3))])
>>> packs.owner.tolist(), packs.summed(np.array([1.0, 2.0, 5.0])).tolist()
([0, 0, 1], [3.0, 5.0])
>>> packs[np.array([1])].rows.tolist()
[[0.0, 0.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from attrs import frozen

from plica.schedule.default.machine import Machine
from plica.search.feature.featuriser import (
    MIN_POINTS_FOR_FORMULAS,
    Featuriser,
    Integers,
    rows_of_points,
)
from plica.search.feature.layout import Floats
from plica.search.feature.store import WIDTH
from plica.search.space import Point, Space


@frozen(eq=False)
class Packs:
    """Rows, the number of the candidate each is of, in ascending order, and how many these are."""

    rows: Floats
    owner: Integers
    count: int

    @staticmethod
    def of(parts: Sequence[Floats]) -> Packs:
        """The packs of candidates whose rows are given apart."""
        width = parts[0].shape[1] if parts else WIDTH
        owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate(parts) if parts else np.zeros((0, width))
        return Packs(rows, owner.astype(np.int64), len(parts))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, chosen: Integers) -> Packs:
        """Some of the candidates, in that order."""
        starts = np.searchsorted(self.owner, np.arange(self.count + 1))
        return Packs.of([self.rows[starts[each] : starts[each + 1]] for each in chosen])

    def __add__(self, other: Packs) -> Packs:
        """These, then the others."""
        rows = np.concatenate([self.rows, other.rows])
        owner = np.concatenate([self.owner, other.owner + self.count])
        return Packs(rows, owner, self.count + other.count)

    @property
    def is_legal(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which candidates have rows."""
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            np.bincount(self.owner, minlength=self.count) > 0
        )
        return found

    @cached_property
    def distinct(self) -> tuple[Floats, Integers]:
        """The rows that differ, and which of these each row is: candidates share many stores."""
        marks = self.rows @ np.sin(np.arange(1.0, self.rows.shape[1] + 1))
        _, first, place = np.unique(marks, return_index=True, return_inverse=True)
        rows = self.rows[first]
        # Two that differ may have one mark, and one that is not known has none.
        if np.array_equal(rows[place], self.rows):
            return rows, place
        return self.rows, np.arange(len(self.rows))

    @cached_property
    def turns(self) -> list[tuple[Integers, Integers]]:
        """Candidate indices and row indices of all first rows, then of all second rows, and so on:
        sums over rows can be computed for many candidates at once, in row order."""
        firsts = np.flatnonzero(np.diff(self.owner, prepend=-1))
        sizes = np.diff(firsts, append=len(self.owner))
        order = np.argsort(-sizes, kind="stable")
        each = [order[: int((sizes > turn).sum())] for turn in range(int(sizes.max(initial=0)))]
        return [(mine, firsts[mine] + turn) for turn, mine in enumerate(each)]

    def summed(self, of_rows: Floats) -> Floats:
        """One number for each candidate: the sum of those of its rows."""
        return np.bincount(self.owner, of_rows, self.count).astype(np.float64)


class SpaceFeaturiser:
    """The packs of points of any sketch of a space."""

    def __init__(self, space: Space, machine: Machine, few: int = MIN_POINTS_FOR_FORMULAS) -> None:
        self.featurisers = tuple([Featuriser(sketch, machine, few) for sketch in space.sketches])
        self._stores: dict[object, Floats] = {}

    def of(self, points: Sequence[Point]) -> Packs:
        """The packs of some points, in their order."""
        arrays: list[Floats] = [np.zeros((0, WIDTH))] * len(points)
        places: dict[int, list[int]] = {}
        for at, point in enumerate(points):
            places.setdefault(point.sketch, []).append(at)
        asked = [(self.featurisers[n], [points[at] for at in mine]) for n, mine in places.items()]
        rows_of = rows_of_points(asked, self._stores) if asked else []
        for mine, (rows, owner) in zip(places.values(), rows_of, strict=True):
            ends = np.searchsorted(owner, np.arange(len(mine) + 1))
            for place, at in enumerate(mine):
                arrays[at] = rows[ends[place] : ends[place + 1]]
        return Packs.of(arrays)
