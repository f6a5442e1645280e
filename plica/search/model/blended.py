"""Blended: boosted trees of stores and of whole candidates, corrected by a Gaussian process.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = Blended().fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax())
7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from attrs import field, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.file import File, malformed, read, written
from plica.search.model.summed_time import SummedTime, logarithms

MAX_PROCESS_EXAMPLES: Final = (
    192  # examples of the process at most, the fastest: it takes the cube of them
)
REACHES: Final = (0.5, 1.0, 2.0, 4.0)  # how far neighbours reach, in deviations of a column
NOISES: Final = (0.01, 0.05, 0.2)  # noise of a time, as a part of the variance
SLOPE: Final = 0.25  # how sure it is that a ratio of other work's times holds here
FARTHEST: Final = 5.0  # a candidate that is more deviations off in a column is no farther
MIN_COLUMN_VARIATION: Final = 1e-6  # columns that vary less are the same for all
ARRAYS: Final = ("middle", "spread", "places", "weights", "taught", "numbers")


@frozen(eq=False)
class _Process:
    """The observations as a Gaussian process on the residuals of pretrained trees."""

    middle: Floats
    spread: Floats  # of each column; none of one that is left out
    places: Floats  # the examples, in deviations
    weights: Floats
    taught: Floats  # what the trees of other work say of the examples, less the mean of that
    numbers: Floats  # that mean, the reach of neighbours, the variance, its noise part

    def off(self, rows: Floats, taught: Floats) -> Floats:
        """By how much logarithms of times are off."""
        places = _placed(rows, self.middle, self.spread)
        array: Floats = (
            self._alike(places, taught - self.numbers[0], self.places, self.taught) @ self.weights
        )
        return array

    def picked(
        self, rows: Floats, taught: Floats, scores: Floats, taken: Sequence[int], count: int
    ) -> list[int]:
        """A number of candidates by score and uncertainty; each pick updates the uncertainty."""
        places, slopes = _placed(rows, self.middle, self.spread), taught - self.numbers[0]
        seen, seen_slopes = self.places, self.taught
        own = self.numbers[2] * 2.0 + SLOPE * slopes * slopes
        found: list[int] = []
        for known in [*taken, *[None] * count]:
            at = known
            if at is None:
                alike = self._alike(places, slopes, seen, seen_slopes)
                noise = self.numbers[2] * self.numbers[3] * np.eye(len(seen))
                every = self._alike(seen, seen_slopes, seen, seen_slopes) + noise
                known_part = (alike * np.linalg.solve(every, alike.T).T).sum(axis=1)
                hopes = scores + np.sqrt(np.maximum(own - known_part, 0.0)) / 2
                hopes[[*taken, *found]] = -np.inf
                at = int(hopes.argmax())
                if not np.isfinite(hopes[at]):
                    break
                found.append(at)
            seen = np.concatenate([seen, places[[at]]])
            seen_slopes = np.append(seen_slopes, slopes[at])
        return found

    def _alike(
        self, one: Floats, one_slopes: Floats, other: Floats, other_slopes: Floats
    ) -> Floats:
        """How much candidates at some places have in common with others."""
        _, reach, variance, _ = self.numbers
        near = np.exp(-_apart(one, other) / (2 * reach * reach))
        array: Floats = variance * (near + 1.0) + SLOPE * np.outer(one_slopes, other_slopes)
        return array


def _placed(rows: Floats, middle: Floats, spread: Floats) -> Floats:
    """Rows in deviations, of the columns that vary."""
    varies = spread > MIN_COLUMN_VARIATION
    array = (rows[:, varies] - middle[varies]) / spread[varies]
    return np.ascontiguousarray(np.clip(array, -FARTHEST, FARTHEST))


def _apart(one: Floats, other: Floats) -> Floats:
    """The mean square of the distances along columns."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * one @ other.T
    array: Floats = np.maximum(squares, 0.0) / max(1, one.shape[1])
    return array


def _process(rows: Floats, taught: Floats, wanted: Floats) -> _Process:
    """The most likely process of some examples; targets are logarithms."""
    middle, spread = rows.mean(axis=0), rows.std(axis=0)
    places = _placed(rows, middle, spread)
    mean = float(taught.mean())
    off = wanted - taught
    off = off - off.mean()
    variance = max(float(off.var()), 1e-4)
    apart = _apart(places, places)
    slope = SLOPE * np.outer(taught - mean, taught - mean)
    best: tuple[float, float, float, Floats] | None = None
    for reach in REACHES:
        near = np.exp(-apart / (2 * reach * reach)) + 1.0
        for noise in NOISES:
            kernel = variance * (near + noise * np.eye(len(off))) + slope
            root = np.linalg.cholesky(kernel)
            weights = np.linalg.solve(root.T, np.linalg.solve(root, off))
            likely = -0.5 * float(off @ weights) - float(np.log(np.diag(root)).sum())
            if best is None or likely > best[0]:
                best = likely, reach, noise, weights
    assert best is not None
    numbers = np.array([mean, best[1], variance, best[2]])
    return _Process(middle, spread, places, best[3], taught - mean, numbers)


@frozen(eq=False)
class Blended:
    """The mean of trees of stores and of candidates, and a Gaussian process of one workload."""

    kind: ClassVar[str] = "blended"

    stores: SummedTime = field(factory=SummedTime)
    wholes: SummedTime = field(factory=lambda: SummedTime(whole=1))
    process: _Process | None = None

    @property
    def standing(self) -> Blended:
        """A model that starts from this one."""
        return Blended(self.stores.standing, self.wholes.standing)

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> Blended:
        """As `Model.fitted` says; the process learns where no groups are given."""
        stores = self.stores.fitted(packs, costs, groups)
        wholes = self.wholes.fitted(packs, costs, groups)
        if groups is not None:
            return Blended(stores, wholes)
        wanted = logarithms(costs, np.zeros(packs.count, np.int64))
        known = np.flatnonzero(np.isfinite(wanted) & packs.is_legal)
        if not len(known):
            return Blended(stores, wholes)
        chosen = np.sort(known[np.argsort(wanted[known], kind="stable")[:MAX_PROCESS_EXAMPLES]])
        rows, taught, _ = self._said(packs[chosen])
        return Blended(stores, wholes, _process(rows, taught, wanted[chosen]))

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster: the mean of all members; constant before any learning."""
        if not (self.stores.booster or self.stores.ground) or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        legal = np.flatnonzero(packs.is_legal)
        rows, taught, seen = self._said(packs if len(legal) == packs.count else packs[legal])
        array = np.full(packs.count, -np.inf)
        if self.process is None:
            array[legal] = -seen
        else:
            array[legal] = -(seen + taught + self.process.off(rows, taught)) / 2
        return array

    def hopeful(self, packs: Packs, taken: Sequence[int], count: int) -> list[int]:
        """A number of candidates that may be fast given the uncertainty, considering those already
        taken; the best ones before any observation."""
        scores = self.scores(packs)
        if self.process is None or not packs.is_legal.all():
            others = [n for n in np.argsort(-scores, kind="stable").tolist() if n not in taken]
            return [n for n in others if np.isfinite(scores[n])][:count]
        rows, taught, _ = self._said(packs)
        return self.process.picked(rows, taught, scores, taken, count)

    def _said(self, packs: Packs) -> tuple[Floats, Floats, Floats]:
        """One feature row per candidate, and its log times before and after local observations."""
        wide = packs.rows.shape[1]
        wholes = self.wholes.looked_at(packs)
        one, other = self.stores.taught_and_seen(packs), self.wholes.taught_and_seen(wholes)
        taught, seen = (one[0] + other[0]) / 2, (one[1] + other[1]) / 2
        return wholes.rows[:, :wide], taught, seen

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        arrays = {} if self.process is None else {e: getattr(self.process, e) for e in ARRAYS}
        stores, wholes = self.stores.saved(), self.wholes.saved()
        return written(self.kind, {"stores": len(stores)}, arrays, stores + wholes)

    @staticmethod
    def from_file(of: File) -> Blended:
        """The model of a file; raises `Malformed`."""
        at = of.fields.get("stores")
        if type(at) is not int or of.fields.keys() != {"stores"} or not 0 <= at <= len(of.blob):
            raise malformed("A model of two is incomplete.", "stores", repr(dict(of.fields)))
        stores, wholes = (SummedTime.from_file(read(part)) for part in (of.blob[:at], of.blob[at:]))
        if not of.arrays:
            return Blended(stores, wholes)
        if of.arrays.keys() != set(ARRAYS):
            raise malformed("A model has other arrays.", ", ".join(ARRAYS), ", ".join(of.arrays))
        process = _Process(**of.arrays)
        count, varies = len(process.weights), int((process.spread > MIN_COLUMN_VARIATION).sum())
        shapes = (process.places.shape, process.taught.shape, process.numbers.shape)
        wide = process.middle.shape == process.spread.shape
        if not wide or shapes != ((count, varies), (count,), (4,)):
            raise malformed("Arrays of a model do not fit.", f"{count} examples", repr(shapes))
        return Blended(stores, wholes, process)
