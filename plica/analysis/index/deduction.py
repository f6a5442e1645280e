"""Deductions: new rows from old, where a row is a polynomial that is not negative.

    Total(i, j)              row i plus row j
    Times(i, j)              row i times row j
    Strip(i, j)              v*z >= k > 0 and v >= 1 (row j) give z >= 1;  v*z >= 0 gives z >= 0
    Replace(i, low, high)    rows low and high say p >= 0 and -p >= 0: an unknown of p is replaced

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.polynomial import polynomial
>>> v, z = dim_var("v"), dim_var("z")
>>> make(Strip(0, 1), [polynomial(v * z - 5), polynomial(v - 1)]) == polynomial(z - 1)
True

They hold for integers; proofs by deduction rely on `make` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

from plica.analysis.index.polynomial import NOTHING, Key, Polynomial, Product, atom, number
from plica.ir.loop.scalar import Scalar


@attrs.frozen
class Total:
    """The sum of two rows."""

    i: int
    j: int


@attrs.frozen
class Times:
    """The product of two rows."""

    i: int
    j: int


@attrs.frozen
class Strip:
    """Row `i` without a factor that row `j` says is at least 1 (or at most -1)."""

    i: int
    j: int


@attrs.frozen
class Replace:
    """Row `i` with an unknown replaced by what rows `low` and `high` say it equals."""

    i: int
    low: int
    high: int


Made: TypeAlias = Total | Times | Strip | Replace


def make(step: Made, rows: Sequence[Polynomial]) -> Polynomial | None:
    """The row that a step derives, or None if the step is invalid."""
    match step:
        case Total(i, j):
            return rows[i].plus(rows[j])
        case Times(i, j):
            return rows[i].times(rows[j])
        case Strip(i, j):
            return _stripped(rows[i], rows[j])
        case Replace(i, low, high):
            return _substituted(rows[i], rows[low], rows[high])


def _stripped(row: Polynomial, sign_row: Polynomial) -> Polynomial | None:
    if (sign := sign_of(sign_row)) is None:
        return None
    unknown, direction = sign
    quotient = NOTHING
    for key, coefficient in row.terms.items():
        if (rest := _over(key, unknown)) is None:
            return None
        quotient = quotient.plus(rest, coefficient)
    if row.constant > 0:
        return None
    # v*z >= k with k >= 1 gives z >= 1, with k = 0 gives z >= 0
    return quotient.scaled(direction).shifted(-1 if row.constant < 0 else 0)


def _substituted(row: Polynomial, low: Polynomial, high: Polynomial) -> Polynomial | None:
    if low.scaled(-1) != high:
        return None
    if (unknown := solvable(low)) is None:
        return None
    coefficient = low.terms[unknown]
    others = Polynomial(low.constant, {k: c for k, c in low.terms.items() if k is not unknown})
    value = others.scaled(-coefficient)  # the coefficient is 1 or -1
    total = number(row.constant)
    for key, factor in row.terms.items():
        part = number(factor)
        for each in atoms_of(key):
            part = part.times(value if each is unknown else atom(each))
        total = total.plus(part)
    return total


def solvable(row: Polynomial) -> Scalar | None:
    """An unknown that a row, as an equation, gives in terms of the others."""
    uses: dict[Scalar, int] = {}
    for each in row.atoms():
        uses[each] = uses.get(each, 0) + 1
    best: Scalar | None = None
    for key, coefficient in row.terms.items():
        if not isinstance(key, Product) and abs(coefficient) == 1 and uses[key] == 1:
            best = key
    return best


def sign_of(row: Polynomial) -> tuple[Scalar, int] | None:
    """The unknown that a row says is at least 1 (sign 1) or at most -1 (sign -1)."""
    if len(row.terms) != 1:
        return None
    ((key, coefficient),) = row.terms.items()
    if isinstance(key, Product) or abs(coefficient) != 1 or row.constant > -1:
        return None
    return key, coefficient


def _over(key: Key, unknown: Scalar) -> Polynomial | None:
    rest = list(atoms_of(key))
    if unknown not in rest:
        return None
    rest.remove(unknown)
    if not rest:
        return number(1)
    return atom(rest[0]) if len(rest) == 1 else Polynomial(0, {Product(tuple(rest)): 1})


def atoms_of(key: Key) -> tuple[Scalar, ...]:
    return key.atoms if isinstance(key, Product) else (key,)
