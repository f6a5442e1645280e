"""Formulas: numbers of a schedule as functions of its decisions, found from examples.

    Formula ::= Formula(factors)           the product of its factors
    Factor  ::= Factor(entries, scale, shift)     scale * (product of some decided numbers) + shift

Extents of loops are products of tile sizes or quotients by them, and quotients are products of the
other sizes; borders of tiles add something; a stride is a product of such extents.  `formula_of`
finds a formula that gives all examples exactly, or none.

>>> entries = np.array([[2.0, 8], [4, 4], [8, 2], [16, 1]])
>>> found = formula_of(entries, (0, 1), np.array([17.0, 33, 65, 129]))
>>> found
Formula(factors=(Factor(entries=(0,), scale=8.0, shift=1.0),))
>>> found.of(np.array([[1.0, 16]]))
array([9.])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from attrs import frozen

from plica.search.feature.layout import Floats


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
class Formula:
    """The product of some factors."""

    factors: tuple[Factor, ...]

    def of(self, decided: Floats) -> Floats:
        """The values for rows of decided numbers, whole where they are whole but for rounding."""
        found = np.ones(len(decided))
        for each in self.factors:
            found = found * each.of(decided)
        whole = np.rint(found)
        return np.where(np.abs(found - whole) < 1e-6 * np.maximum(1.0, np.abs(found)), whole, found)


def constant(value: float) -> Formula:
    """A number that depends on no decision."""
    return Formula((Factor((), value),))


def formula_of(
    decided: Floats, groups: Sequence[int], values: Floats, known: Sequence[Formula] = ()
) -> Formula | None:
    """A formula for the values of some rows of decided numbers; `groups` says which entries are of
    one decision; formulas that are `known` may be factors of it.  Rows without a value are left
    out.
    """
    given = ~np.isnan(values)
    if not given.any():
        return constant(0.0)
    decided, values = decided[given], values[given]
    if (values == values[0]).all():
        return constant(float(values[0]))
    found = _line(decided, tuple(groups), values)
    if found is not None:
        return Formula((found,))
    for each in known:
        part = each.of(decided)
        if len(each.factors) != 1 or not each.factors[0].shift or not part.all():
            continue
        rest = values / part
        other = _line(decided, tuple(groups), rest)
        if other is not None:
            return Formula((*each.factors, other))
    return None


def _line(decided: Floats, groups: tuple[int, ...], values: Floats) -> Factor | None:
    """One factor, of few entries if it can be; a shift only where there is no other way."""
    if (values == values[0]).all():
        return Factor((), float(values[0]))
    choices, products = _products(decided, groups)
    logs = np.log(products)
    if (values > 0).all():
        apart = np.log(values)[:, None] - logs
        good = np.flatnonzero(np.ptp(apart, axis=0) < 1e-9)
        if len(good):
            at = int(good[0])
            return Factor(choices[at], _near(float(values[0] / products[0, at])))
    centred = products - products.mean(axis=0)
    spread = (centred**2).sum(axis=0)
    slope = (centred * (values - values.mean())[:, None]).sum(axis=0)
    scale = np.divide(slope, spread, out=np.zeros_like(slope), where=spread > 0)
    shift = values.mean() - scale * products.mean(axis=0)
    off = np.abs(scale * products + shift - values[:, None]).max(axis=0)
    good = np.flatnonzero((off < 1e-7 * np.abs(values).max()) & (spread > 0))
    # Two rows are on a line whatever they mean.
    if not len(good) or len(np.unique(values)) < 3:
        return None
    at = int(good[0])
    return Factor(choices[at], _near(float(scale[at])), _near(float(shift[at])))


def _near(value: float) -> float:
    """The whole number, or the half, quarter … of one, that a value is but for rounding."""
    for parts in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16):
        whole = round(value * parts)
        if abs(value * parts - whole) < 1e-9 * max(1.0, abs(value)):
            return whole / parts
    return value


def _products(decided: Floats, groups: tuple[int, ...]) -> tuple[list[tuple[int, ...]], Floats]:
    choices = _choices(groups)
    return choices, np.stack([decided[:, list(each)].prod(axis=1) for each in choices], axis=1)


@lru_cache(maxsize=64)
def _choices(groups: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Sets of entries whose product a number may be: parts of one decision, of two, of three."""
    own: dict[int, list[int]] = {}
    for entry, group in enumerate(groups):
        own.setdefault(group, []).append(entry)
    parts = {group: list(_parts(entries)) for group, entries in own.items()}
    found = [part for each in parts.values() for part in each]
    for one, two in combinations(parts, 2):
        found += [(*a, *b) for a in parts[one] for b in parts[two]]
    few = {group: [part for part in each if _is_run(part)] for group, each in parts.items()}
    for three in combinations(few, 3):
        found += [
            (*a, *b, *c) for a in few[three[0]] for b in few[three[1]] for c in few[three[2]]
        ]
        if len(found) > MOST:
            break
    return found[:MOST]


MOST = 6000
"""How many products are tried."""


def _parts(entries: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Parts of a decision, the smaller first; of all its entries the product is always the same."""
    most = len(entries) - (len(entries) > 1)
    for count in range(1, most + 1):
        yield from combinations(entries, count)


def _is_run(part: tuple[int, ...]) -> bool:
    return part[-1] - part[0] == len(part) - 1
