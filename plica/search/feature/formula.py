"""Formulas: numbers of a schedule as functions of its decisions, found from examples.

    Formula ::= Formula(factors)           the product of its factors
    Factor  ::= Factor(entries, scale, shift)     scale * (product of some decided numbers) + shift

>>> entries = np.array([[2.0, 8], [4, 4], [8, 2], [16, 1]])
>>> found = Basis(entries, [(0, 0), (0, 1)]).formula(np.array([17.0, 33, 65, 129]))
>>> found
FeatureFormula(factors=(Factor(entries=(0,), scale=8.0, shift=1.0),))
>>> found.of(np.array([[1.0, 16]]))
array([9.])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import Final, TypeAlias

import numpy as np
from attrs import frozen

from plica.search.feature.layout import Floats

Column: TypeAlias = tuple[int, int]  # a decision, and one of its sizes or its inverse


@frozen
class Factor:
    """`scale * (product of the entries) + shift`."""

    entries: tuple[int, ...]
    scale: float
    shift: float = 0.0

    def of(self, decided: Floats) -> Floats:
        """The values for rows of decided numbers."""
        product: Floats = decided[:, list(self.entries)].prod(axis=1)
        return self.scale * product + self.shift


@frozen
class FeatureFormula:
    """The product of some factors."""

    factors: tuple[Factor, ...]

    def of(self, decided: Floats) -> Floats:
        """The values for rows of decided numbers, whole where they are whole but for rounding."""
        array = np.ones(len(decided))
        for factor in self.factors:
            array = array * factor.of(decided)
        whole = np.rint(array)
        return np.where(np.abs(array - whole) < 1e-6 * np.maximum(1.0, np.abs(array)), whole, array)


def constant(value: float) -> FeatureFormula:
    """A number that depends on no decision."""
    return FeatureFormula((Factor((), value),))


class Basis:
    """Rows of decided numbers, and the products of them of which formulas are made.

    `columns` says of which decision each entry is.
    """

    def __init__(self, decided: Floats, columns: Sequence[Column]) -> None:
        self.decided = decided
        self.choices = _choices(tuple(columns))
        made = [decided[:, list(choice)].prod(axis=1) for choice in self.choices]
        self.products = np.stack(made, axis=1) if made else np.zeros((len(decided), 0))
        self.logs = np.log(self.products)

    def formula(
        self, values: Floats, known: Sequence[FeatureFormula] = ()
    ) -> FeatureFormula | None:
        """A formula for the values of rows that have one; `known` formulas may be factors of it."""
        given = ~np.isnan(values)
        if not given.any():
            return constant(0.0)
        if (values[given] == values[given][0]).all():
            return constant(float(values[given][0]))
        if (factor := self._line(given, values)) is not None:
            return FeatureFormula((factor,))
        for each in dict.fromkeys(known):
            if len(each.factors) != 1 or not each.factors[0].entries:
                continue
            part = each.of(self.decided)
            other = self._line(given, values / part) if part.all() else None
            if other is not None:
                return FeatureFormula((*each.factors, other))
        return None

    def _line(
        self, given: np.ndarray[tuple[int], np.dtype[np.bool_]], all_: Floats
    ) -> Factor | None:
        """One linear factor, with few terms if possible; an offset only if necessary."""
        values, products = all_[given], self.products[given]
        if (values == values[0]).all():
            return Factor((), float(values[0]))
        if (values > 0).all():
            apart = np.log(values)[:, None] - self.logs[given]
            good = np.flatnonzero(np.ptp(apart, axis=0) < ROUNDING_TOLERANCE)
            if len(good):
                at = int(good[0])
                return Factor(self.choices[at], _near(float(values[0] / products[0, at])))
        if len(np.unique(values)) < MIN_LINE_POINTS:
            return None
        centred = products - products.mean(axis=0)
        spread = (centred**2).sum(axis=0)
        slope = (centred * (values - values.mean())[:, None]).sum(axis=0)
        scale = np.divide(slope, spread, out=np.zeros_like(slope), where=spread > 0)
        shift = values.mean() - scale * products.mean(axis=0)
        off = np.abs(scale * products + shift - values[:, None]).max(axis=0)
        good = np.flatnonzero((off < ROUNDING_TOLERANCE * np.abs(values).max()) & (spread > 0))
        if not len(good):
            return None
        at = int(good[0])
        return Factor(self.choices[at], _near(float(scale[at])), _near(float(shift[at])))


ROUNDING_TOLERANCE: Final = 1e-9  # what is nearer is the same but for rounding
MIN_LINE_POINTS: Final = 3  # two values are on a line whatever they mean
MAX_PRODUCTS_TRIED: Final = 8000  # how many products are tried


def _near(value: float) -> float:
    """The whole number, or the half, third … of one, that a value is but for rounding."""
    for parts in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16):
        whole = round(value * parts)
        if abs(value * parts - whole) < ROUNDING_TOLERANCE * max(1.0, abs(value)):
            return whole / parts
    return value


@lru_cache(maxsize=64)
def _choices(columns: tuple[Column, ...]) -> tuple[tuple[int, ...], ...]:
    """Sets of entries whose product a number may be: parts of one, two or three decisions."""
    own: dict[int, list[int]] = {}
    for entry, (decision, _) in enumerate(columns):
        own.setdefault(decision, []).append(entry)
    parts = {each: list(_parts(entries, columns)) for each, entries in own.items()}
    found = dict.fromkeys([part for each in parts.values() for part in each])
    for one, two in combinations(parts, 2):
        found |= dict.fromkeys([(*a, *b) for a in parts[one] for b in parts[two]])
    runs = {each: [part for part in parts[each] if _is_run(part)] for each in parts}
    for count in range(3, len(own) + 1):
        for some in combinations(own, count):
            found |= dict.fromkeys(_levels([own[each] for each in some]))
        if len(found) > MAX_PRODUCTS_TRIED:
            break
    for three in combinations(runs, 3):
        if len(found) > MAX_PRODUCTS_TRIED:
            break
        every = product(*[runs[each] for each in three])
        found |= dict.fromkeys([(*a, *b, *c) for a, b, c in every])
    return tuple(found)[:MAX_PRODUCTS_TRIED]


def _levels(decisions: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """The same run of sizes of each decision, counted from the first, and from the last."""
    longest = max(len(decision) for decision in decisions)
    for first in range(longest):
        for last in range(first + 1, longest + 1):
            yield tuple([entry for decision in decisions for entry in decision[first:last]])
            yield tuple(
                [
                    n
                    for decision in decisions
                    for n in decision[max(0, len(decision) - last) : len(decision) - first]
                ]
            )


def _parts(entries: Sequence[int], columns: Sequence[Column]) -> Iterator[tuple[int, ...]]:
    """Parts of a decision, the smaller first; no part has a size and what divides by it.

    The sizes of a tile have one product, whatever they are, so a part is never all of them.
    """
    sizes = len({columns[entry] for entry in entries})
    most = sizes - (len(entries) == sizes > 1)
    for count in range(1, most + 1):
        for part in combinations(entries, count):
            if len({columns[each] for each in part}) == count:
                yield part


def _is_run(part: tuple[int, ...]) -> bool:
    return part[-1] - part[0] == len(part) - 1
