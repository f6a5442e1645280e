"""Featurisers: the features of many points of one sketch, without replaying them.

>>> from plica.ir.text.script import from_text
>>> from plica.schedule import block, do, loops, sample_tile, split, trace_of, vectorize
>>> from plica.search.space import DOUBLED, Space, sketch
>>> @do
... def tiled():
...     (i,) = yield loops((yield block("out")))
...     _, inner = yield split(i, sample_tile(2, max_inner=16))
...     yield vectorize(inner)
>>> kernel = from_text(DOUBLED).values[0]
>>> space = Space((sketch("tiled", kernel, trace_of(tiled, kernel)),))
>>> featuriser = Featuriser(space.sketches[0], Machine(512, 32), few=2)
>>> found, pack = featuriser.of(list(space.points()))
>>> found.shape == (5, WIDTH), pack.tolist(), featuriser.report
(True, [0, 1, 2, 3, 4], FeaturiserReport(compiled=1, uncompiled=0, computed=5, replayed=0))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.ir.loop.statement import Kernel
from plica.schedule.default.machine import Machine
from plica.schedule.instruction import Decision
from plica.schedule.primitive.sample import SampleComputeLocation
from plica.search.feature.code import NO_CONDITIONS, conditions_of
from plica.search.feature.formula import Basis, Column, FeatureFormula
from plica.search.feature.layout import Floats, Nests, StoreLayout, aligned
from plica.search.feature.nest import nests_of
from plica.search.feature.store import WIDTH, rows, rows_of_each
from plica.search.lowered import LOWERED
from plica.search.space import Point, Sketch
from plica.search.support import Tiles

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Decisions: TypeAlias = tuple[Decision, ...]
DiscreteKey: TypeAlias = tuple[Decision, ...]  # what is decided where no sizes are
FeatureRows: TypeAlias = dict[Decisions, Floats]
ReplayedStores: TypeAlias = tuple[StoreLayout, Floats, tuple[float, ...]]


@frozen(eq=False)
class CompiledFeatures:
    """A layout with a formula for each of its numbers."""

    layout: StoreLayout
    formulas: tuple[FeatureFormula, ...]

    def numbers(self, decided: Floats) -> Floats:
        """The numbers of the layout for rows of decided numbers."""
        memo: dict[FeatureFormula, Floats] = {}
        for formula in self.formulas:
            if formula not in memo:
                memo[formula] = formula.of(decided)
        return np.stack([memo[formula] for formula in self.formulas], axis=1)


@frozen
class FeaturiserReport:
    """How many classes have formulas and how many have none; points computed, and replayed."""

    compiled: int = 0
    uncompiled: int = 0
    computed: int = 0
    replayed: int = 0


MIN_POINTS_FOR_FORMULAS: Final = (
    16  # more points of a class than this are worth formulas; fewer are replayed
)
MAX_POINTS_WITHOUT_FORMULAS: Final = (
    256  # points of a sketch that never has formulas, at most: each is replayed
)
EXAMPLES: Final = 6  # points replayed for a class, besides one for each of its sizes
MAX_REPLAYED_POINTS: Final = 16  # points replayed for a class, at most
VALIDATION_POINTS: Final = 4  # points replayed to try its formulas on
AGAIN: Final = 4  # how often formulas are made, each time from more points
FEWER: Final = 4  # points replayed for a class that is tried with the formulas of another
MAX_CACHED_SKETCH_POINTS: Final = 4096  # a sketch of no more points keeps the rows of all
MAX_CACHED_STORES: Final = 1 << 13  # this many stores are known, at most, before all are forgotten
NO_ROWS: Final[Floats] = np.zeros((0, WIDTH))
ATTEMPTS: Final = 4  # points drawn for each that is wanted, as some are illegal


def features(kernel: Kernel, machine: Machine) -> Floats:
    """The features of a kernel, (stores, WIDTH)."""
    nests = nests_of(kernel)
    layout = aligned([nests])
    assert layout is not None  # one is like itself
    numbers = layout.numbers(nests)[None]
    array: Floats = rows(layout, numbers, machine, conditions_of(nests))[0]
    return array


class Featuriser:
    """Features of the points of one sketch; remembers classes, and points it has replayed."""

    def __init__(
        self, sketch: Sketch, machine: Machine, few: int = MIN_POINTS_FOR_FORMULAS
    ) -> None:
        self.sketch, self.machine, self._few = sketch, machine, few
        self._small = MAX_POINTS_WITHOUT_FORMULAS if few == MIN_POINTS_FOR_FORMULAS else few
        self.report = FeaturiserReport()
        self._classes: dict[DiscreteKey, CompiledFeatures | None] = {}
        self._kept: dict[Decisions, Floats] = {}
        self._ways = list(_ways(sketch))
        self._set_way()
        self._replayed: dict[Decisions, Nests | None] = {}

    @cached_property
    def _conditions(self) -> tuple[float, ...]:
        """Those of the default, for all points alike."""
        lowered = LOWERED.of(self.sketch.decided(self.sketch.default), self.sketch.kernel)
        return NO_CONDITIONS if lowered is None else conditions_of(nests_of(lowered))

    def _set_way(self) -> None:
        self._sized = self._ways.pop(0)
        self._named = [at for at in range(len(self.sketch.supports)) if at not in self._sized]

    def of(self, points: Sequence[Point]) -> tuple[Floats, Integers]:
        """The rows of all points, and which point each is of; an illegal point may have none."""
        (found,) = rows_of_points([(self, points)], {})
        return found

    def by_formulas(self, points: Sequence[Point]) -> tuple[FeatureRows, list[Decisions]]:
        """The rows of points that have formulas, and the points to be replayed one by one."""
        wanted = dict.fromkeys([point.decisions for point in points])
        unknown = [each for each in wanted if each not in self._kept]
        made: FeatureRows = {}
        alone: list[Decisions] = []
        # Classes that share formulas are estimated together: arrays of few points cost as much.
        by_formulas: dict[CompiledFeatures, list[Decisions]] = {}
        for which, members in self._by_class(unknown).items():
            compiled = self._classes.get(which)
            if which not in self._classes and self._is_worth(which, members):
                compiled = self._compiled(which)
            if compiled is None:
                alone += members
            else:
                by_formulas.setdefault(compiled, []).extend(members)
        report = self.report
        computed = report.computed + sum(map(len, by_formulas.values()))
        self.report = evolve(report, computed=computed, replayed=report.replayed + len(alone))
        for compiled, members in by_formulas.items():
            numbers = compiled.numbers(self._decided(members))
            array = rows(compiled.layout, numbers, self.machine, self._conditions)
            made.update(zip(members, array, strict=True))
        return made, alone

    def replayed(self, of: Decisions) -> ReplayedStores | None:
        """The layout, numbers and conditions of a replayed point, or None if it has no layout."""
        if (nests := self._nests(of)) is None or (layout := aligned([nests])) is None:
            return None
        return layout, layout.numbers(nests), self._conditions

    def joined(self, points: Sequence[Point], made: FeatureRows) -> tuple[Floats, Integers]:
        """The rows of all points, some of which were made just now."""
        if self.sketch.size <= MAX_CACHED_SKETCH_POINTS:
            self._kept.update(made)
        parts = [self._kept.get(p.decisions, made.get(p.decisions, NO_ROWS)) for p in points]
        owner = np.repeat(np.arange(len(points)), [len(part) for part in parts])
        return np.concatenate([NO_ROWS, *parts]), owner.astype(np.int64)

    def _by_class(self, members: Sequence[Decisions]) -> dict[DiscreteKey, list[Decisions]]:
        """Points by class; which decisions are sizes is found out once some class has many."""
        found: dict[DiscreteKey, list[Decisions]] = {}
        for member in members:
            found.setdefault(self._class(member), []).append(member)
        many = [mine for which, mine in found.items() if self._is_worth(which, mine)]
        if self._classes or not many:
            return found
        self._settle(many[0][0])
        found = {}
        for member in members:
            found.setdefault(self._class(member), []).append(member)
        return found

    def _is_worth(self, which: DiscreteKey, members: Sequence[Decisions]) -> bool:
        """Whether formulas of a class cost less than to replay all of it that was asked for."""
        here = sum(self._class(each) == which for each in self._replayed if each not in members)
        return self.sketch.size > self._small and here + len(members) > self._few

    def _settle(self, decisions: Decisions) -> None:
        """Find out which decisions are sizes."""
        while self._compiled(self._class(decisions)) is None and self._ways:
            self._classes, self.report = {}, FeaturiserReport()
            self._set_way()

    def _class(self, decisions: Decisions) -> DiscreteKey:
        return tuple([decisions[at] for at in self._named])

    def _decided(self, members: Sequence[Decisions]) -> Floats:
        """The decided sizes, a row for each member."""
        numbers = [[size for at in self._sized for size in member[at]] for member in members]
        sizes = np.array(numbers, dtype=np.float64).reshape(len(members), -1)
        return np.concatenate([sizes, 1.0 / sizes[:, self._alone()]], axis=1)

    def _alone(self) -> list[int]:
        """Sizes of which the quotients are needed: sizes of a tile are quotients by each other."""
        supports, groups = self.sketch.supports, [at for at, _ in self._columns()]
        return [n for n, at in enumerate(groups) if not isinstance(supports[at], Tiles)]

    def _columns(self) -> list[Column]:
        """Of which decision each size is, and which of its sizes."""
        return [(at, n) for at in self._sized for n in range(len(self.sketch.default[at]))]

    def _nests(self, decisions: Decisions) -> Nests | None:
        """The nests of a point, or None if it is illegal or cannot be lowered."""
        if decisions not in self._replayed:
            lowered = LOWERED.of(self.sketch.decided(decisions), self.sketch.kernel)
            self._replayed[decisions] = None if lowered is None else nests_of(lowered)
        return self._replayed[decisions]

    def _compiled(self, which: DiscreteKey) -> CompiledFeatures | None:
        if which not in self._classes:
            found = self._like_another(which) or self._made(which)
            self._classes[which] = found
            at = self.report
            self.report = evolve(
                at,
                compiled=at.compiled + (found is not None),
                uncompiled=at.uncompiled + (found is None),
            )
        return self._classes[which]

    def _examples(
        self, which: DiscreteKey, wanted: int, seed: int = 0
    ) -> tuple[list[Decisions], list[Nests]]:
        """Legal points of a class: random ones alternating with ones that have few sizes of 1."""
        random = Random(seed)
        supports = self.sketch.supports
        chosen: dict[Decisions, Nests] = {}
        tried: set[Decisions] = set()
        for number in range(ATTEMPTS * wanted):
            drawn = [
                self._joined(which, [random.choice(supports[at].members) for at in self._sized])
                for _ in range(1 if number % 3 == 0 else GENERIC)
            ]
            one = min(drawn, key=lambda each: sum(size == 1 for part in each for size in part))
            if one in tried:
                continue
            tried.add(one)
            if (nests := self._nests(one)) is not None:
                chosen[one] = nests
            if len(chosen) == wanted:
                break
        return list(chosen), list(chosen.values())

    def _joined(self, which: DiscreteKey, sizes: list[Decision]) -> Decisions:
        named, sized = iter(which), iter(sizes)
        every = range(len(self.sketch.supports))
        return tuple([next(sized) if at in self._sized else next(named) for at in every])

    def _like_another(self, which: DiscreteKey) -> CompiledFeatures | None:
        """The formulas of another class, if a few points of this one are as they say."""
        if not (others := [_class for _class in self._classes.values() if _class is not None]):
            return None
        points, nests = self._examples(which, FEWER)
        if not points:
            return None
        for other in others:
            if self._agree(other, points, nests):
                return other
        return None

    def _agree(self, with_: CompiledFeatures, points: list[Decisions], nests: list[Nests]) -> bool:
        if not points:
            return True
        if not all(with_.layout.fits(nest) for nest in nests):
            return False
        array = with_.numbers(self._decided(points))
        given = np.stack([with_.layout.numbers(nest) for nest in nests])
        return bool(np.all(np.isnan(given) | (np.abs(array - given) <= 1e-9 * np.abs(given))))

    def _made(self, which: DiscreteKey) -> CompiledFeatures | None:
        """Formulas from examples; points at which they are wrong are examples the next time."""
        wanted = min(EXAMPLES + len(self._columns()), MAX_REPLAYED_POINTS)
        points, nests = self._examples(which, wanted)
        for number in range(1, AGAIN + 1):
            if (made := self._from_examples(points, nests)) is None:
                return None
            others, found = self._examples(which, VALIDATION_POINTS, number)
            if self._agree(made, others, found):
                return made
            points, nests = [*points, *others], [*nests, *found]
        return None

    def _from_examples(
        self, points: list[Decisions], nests: list[Nests]
    ) -> CompiledFeatures | None:
        layout = aligned(nests) if nests else None
        if layout is None:
            return None
        columns = self._columns()
        columns += [columns[each] for each in self._alone()]
        basis = Basis(self._decided(points), columns)
        given = np.stack([layout.numbers(nest) for nest in nests])
        memo: dict[bytes, FeatureFormula] = {}
        # Sizes first: strides are products of them.
        for number in np.argsort(np.nanmax(given, axis=0, initial=0.0), kind="stable"):
            column = given[:, number]
            key = column.tobytes()
            if key not in memo:
                if (formula := basis.formula(column, tuple(memo.values()))) is None:
                    return None
                memo[key] = formula
        formulas = [memo[given[:, number].tobytes()] for number in range(given.shape[1])]
        made = CompiledFeatures(layout, tuple(formulas))
        return made if self._agree(made, points, nests) else None


def rows_of_points(
    asked: Sequence[tuple[Featuriser, Sequence[Point]]], known: dict[object, Floats]
) -> list[tuple[Floats, Integers]]:
    """The rows of each featuriser's points; replayed stores are computed together, each once."""
    if len(known) > MAX_CACHED_STORES:
        known.clear()
    parts = [featuriser.by_formulas(points) for featuriser, points in asked]
    pairs = [(at, one) for at, (_, alone) in enumerate(parts) for one in alone]
    schedules = [asked[at][0].replayed(one) for at, one in pairs]
    given = [each for each in schedules if each is not None]
    found = iter(rows_of_each(given, asked[0][0].machine, known) if given else [])
    for (at, one), schedule in zip(pairs, schedules, strict=True):
        parts[at][0][one] = NO_ROWS if schedule is None else next(found)
    return [
        each.joined(points, made) for (each, points), (made, _) in zip(asked, parts, strict=True)
    ]


def kind_of(sketch: Sketch, decisions: Decisions) -> DiscreteKey | None:
    """The decisions of a point other than sizes: after `MIN_POINTS_FOR_FORMULAS` points, others
    with the same key are nearly free."""
    if sketch.size <= MAX_POINTS_WITHOUT_FORMULAS:
        return None
    sized = _ways(sketch)[0]
    return tuple([decision for at, decision in enumerate(decisions) if at not in sized])


@lru_cache(maxsize=1024)
def _ways(sketch: Sketch) -> tuple[tuple[int, ...], ...]:
    """Sets of decisions that may all be sizes, the largest first."""
    supports = sketch.supports
    tiles = [at for at, support in enumerate(supports) if isinstance(support, Tiles)]
    numbers = [
        at
        for at, support in enumerate(supports)
        if isinstance(support, Tiles) or min([min(numbers) for numbers in support.members]) > 0
    ]
    steps = [sketch.trace.steps[number].instruction for number in sketch.steps]
    no_places = [at for at in numbers if not isinstance(steps[at], SampleComputeLocation)]
    found: list[tuple[int, ...]] = []
    apart = sorted(set(no_places) - set(tiles), key=lambda at: len(supports[at].members))
    alone = [[at for at in no_places if at != one] for one in apart]
    for each in (no_places, *alone[:MAX_DISCRETE_DECISIONS], tiles):
        if tuple(each) not in found:
            found.append(tuple(each))
    return tuple(found)


MAX_DISCRETE_DECISIONS: Final = 3  # how many decisions are tried as the only one that is no size
GENERIC: Final = 6  # points of which the one with the fewest sizes of 1 is taken
