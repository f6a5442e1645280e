"""Summed time: boosted trees that correct the estimate of each store; the times of stores add up.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = SummedTime().fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax()), int(model.standing.scores(packs).argmax())
(7, 7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from attrs import asdict, evolve, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.feature.store import WIDTH
from plica.search.model.baseline import Analytical
from plica.search.model.boosted import Trees, checked, predicted, settings_of, tree_library
from plica.search.model.file import File, malformed, written

if TYPE_CHECKING:
    from xgboost import DMatrix

FAILED: Final = 4.0  # times as long as the slowest counts a trial that failed
FARTHEST: Final = 2.0  # log times farther off pull no harder: the slowest do not matter
PARTNERS: Final = 16  # with this many others of its group each candidate is compared
NOISE: Final = 0.05  # pairs whose logarithms are nearer say nothing
MATTERS: Final = 0.5  # pairs that are farther apart matter no more
SHARP: Final = 4.0  # how sure an order is by how far logarithms are apart
ANCHOR: Final = 0.05  # how much the times themselves count, beside the order of pairs
FAINT: Final = 1e-3  # the least share of a candidate's time by which a store counts


@frozen(eq=False)
class SummedTime:
    """Trees of other work, and of this; none before it has learned."""

    kind: ClassVar[str] = "summed-time"

    rounds: int = 100
    depth: int = 4
    rate: float = 0.1
    threads: int = 1
    seed: int = 0
    whole: int = 0  # whether a candidate is one row
    ground: bytes = b""  # the trees it stands on
    booster: bytes = b""

    @property
    def standing(self) -> SummedTime:
        """A model based on this one; there is only one base."""
        return SummedTime(whole=self.whole, ground=self.booster)

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> SummedTime:
        """As `Model.fitted` says."""
        which = np.zeros(packs.count, np.int64) if groups is None else groups
        wanted = logarithms(costs, which)
        known = np.isfinite(wanted) & packs.is_legal
        if not known.any():
            return evolve(self, booster=b"")
        library = tree_library()
        if not known.all():
            packs, wanted, which = packs[np.flatnonzero(known)], wanted[known], which[known]
        packs = self.looked_at(packs)
        owner, (_, group) = packs.owner, np.unique(which, return_inverse=True)
        sizes = np.bincount(group)

        pairs = _pairs(wanted, group, sizes, self.seed)

        def gradients(each: Floats, _: DMatrix) -> tuple[Floats, Floats]:
            whole = summed_logarithms(each, packs)
            off = whole - wanted
            off = np.clip(off - (np.bincount(group, off) / sizes)[group], -FARTHEST, FARTHEST)
            slope, bend = pairs.pulls(whole)
            slope, bend = slope + ANCHOR * off, bend + ANCHOR
            share = np.exp(each - whole[owner])
            return slope[owner] * share, np.maximum(bend[owner] * share, FAINT)

        data = library.QuantileDMatrix(packs.rows, max_bin=64, nthread=self.threads)
        data.set_base_margin(self._begun(packs.rows))
        trees = Trees(self.rounds, self.depth, self.rate, 0.0, self.threads, self.seed)
        parameters = trees.parameters(min_child_weight=1.0)
        found = library.train(parameters, data, trees.rounds, obj=gradients)
        return evolve(self, booster=bytes(found.save_raw("ubj")))

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster; all alike before it has learned, nothing is worse than no rows."""
        if not (self.booster or self.ground) or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        array = self.taught_and_seen(self.looked_at(packs))[1]
        return np.where(packs.is_legal, -array, -np.inf)

    def taught_and_seen(self, packs: Packs) -> tuple[Floats, Floats]:
        """The log times of candidates before and after local observations, up to a constant."""
        rows, place = (packs.rows, np.arange(len(packs.rows))) if self.whole else packs.distinct
        array = self._begun(rows)
        before = summed_logarithms(array[place], packs)
        if not self.booster:
            return before, before
        own = predicted(self.booster, rows, self.threads)
        return before, summed_logarithms((array + own)[place], packs)

    def looked_at(self, packs: Packs) -> Packs:
        """Rows of stores, or one for each candidate."""
        return as_wholes(packs) if self.whole else packs

    def _begun(self, rows: Floats) -> Floats:
        """Log times of stores before anything is learned here; unknown stores are alike."""
        found = rows[:, -1] if self.whole else log_estimates(rows)
        return found + predicted(self.ground, rows, self.threads) if self.ground else found

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        fields = asdict(self)
        ground, own = fields.pop("ground"), fields.pop("booster")
        return written(self.kind, {**fields, "ground": len(ground)}, {}, ground + own)

    @staticmethod
    def from_file(of: File) -> SummedTime:
        """The model of a file; raises `Malformed`."""
        fields = dict(of.fields)
        at = fields.pop("ground", None)
        if type(at) is not int or not 0 <= at <= len(of.blob):
            raise malformed("A model that stands on another is incomplete.", "ground", repr(at))
        settings = settings_of(evolve(of, fields=fields), SummedTime())
        return SummedTime(**settings, ground=checked(of.blob[:at]), booster=checked(of.blob[at:]))


def log_estimates(rows: Floats) -> Floats:
    """The logarithms of store estimates; a constant for stores without an estimate."""
    known = Analytical().of_stores(rows) if rows.shape[1] == WIDTH else np.ones(len(rows))
    array: Floats = np.log(np.maximum(known, 1.0))
    return array


def as_wholes(packs: Packs) -> Packs:
    """One feature row per candidate: stores by share, the heaviest, its share, count and total."""
    array = log_estimates(packs.rows)
    whole = summed_logarithms(array, packs)
    share = np.exp(array - whole[packs.owner])
    unknown = np.isnan(packs.rows)
    known = np.where(unknown, 0.0, packs.rows) if unknown.any() else packs.rows
    legal = np.flatnonzero(packs.is_legal)
    mixed = np.zeros((len(legal), known.shape[1]))
    for candidates, stores in packs.turns:
        mixed[candidates] += share[stores, None] * known[stores]
    # The heaviest store of each comes last, and is written last.
    order = np.lexsort((array, packs.owner))
    heaviest = np.zeros(packs.count, np.int64)
    heaviest[packs.owner[order]] = order
    largest = heaviest[legal]
    rows = np.concatenate(
        [
            mixed,
            packs.rows[largest],
            (array[largest] - whole[legal])[:, None],
            np.bincount(packs.owner, minlength=packs.count)[legal, None],
            whole[legal, None],
        ],
        axis=1,
    )
    return Packs(rows, legal, packs.count)


@frozen(eq=False)
class _Pairs:
    """Candidates of one group side by side, which of them is slower, and how much that matters."""

    one: Integers
    other: Integers
    slower: Floats
    weight: Floats
    count: int

    def pulls(self, whole: Floats) -> tuple[Floats, Floats]:
        """The slope and curvature of the pairwise loss for each candidate's log time."""
        apart = np.clip(SHARP * self.slower * (whole[self.one] - whole[self.other]), -30.0, 30.0)
        wrong = 1.0 / (1.0 + np.exp(apart))
        pull = SHARP * self.slower * wrong * self.weight
        bend = SHARP * SHARP * wrong * (1.0 - wrong) * self.weight
        ends = np.concatenate([self.one, self.other])
        slopes = np.bincount(ends, np.concatenate([-pull, pull]), self.count)
        bends = np.bincount(ends, np.concatenate([bend, bend]), self.count)
        return slopes.astype(np.float64), bends.astype(np.float64)


def _pairs(wanted: Floats, group: Integers, sizes: Integers, seed: int) -> _Pairs:
    """Some pairs of every candidate with others of its group; those within noise count nothing."""
    random = np.random.default_rng(seed)
    order = np.argsort(group, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    drawn = (random.random((len(wanted), PARTNERS)) * sizes[group][:, None]).astype(np.int64)
    other = order[first[group][:, None] + drawn]
    apart = wanted[:, None] - wanted[other]
    weight = np.where(np.abs(apart) > NOISE, np.minimum(np.abs(apart) / MATTERS, 1.0), 0.0)
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), FAINT) / 2
    one = np.repeat(np.arange(len(wanted)), PARTNERS)
    return _Pairs(one, other.ravel(), np.sign(apart).ravel(), weight.ravel(), len(wanted))


def logarithms(costs: Floats, groups: Integers) -> Floats:
    """The logarithms of seconds; failures get the worst of their group, or NaN if all failed."""
    usable = np.isfinite(costs) & (costs > 0)
    array = np.full(len(costs), np.nan)
    array[usable] = np.log(costs[usable])
    for group in np.unique(groups[~usable]):
        mine = groups == group
        if (mine & usable).any():
            array[mine & ~usable] = array[mine & usable].max() + np.log(FAILED)
    return array


def summed_logarithms(each: Floats, packs: Packs) -> Floats:
    """The logarithm of each candidate's sum, from the logarithms of its stores."""
    most = np.full(packs.count, -np.inf)
    np.maximum.at(most, packs.owner, each)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        array: Floats = most + np.log(packs.summed(np.exp(each - most[packs.owner])))
    return array
