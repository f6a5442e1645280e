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

Combinations: polynomials that are not negative, added up to a negative number.

Found by the simplex method over exact fractions (Farkas' lemma: multiples exist exactly if the
rows, with each product as an unknown of its own, have no rational solution).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, TypeAlias

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
        for scalar in atoms_of(key):
            part = part.times(value if scalar is unknown else atom(scalar))
        total = total.plus(part)
    return total


def solvable(row: Polynomial) -> Scalar | None:
    """An unknown that a row, as an equation, gives in terms of the others."""
    uses: dict[Scalar, int] = {}
    for scalar in row.atoms():
        uses[scalar] = uses.get(scalar, 0) + 1
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


# --- combinations ------------------------------------------------------------------------------


MAX_PIVOTS: Final = 400


def contradiction(rows: Sequence[Polynomial]) -> list[Fraction] | None:
    """Non-negative multiples of the rows that add up to -1, or None if none were found."""
    places: dict[Key, int] = {}
    for row in rows:
        for key in row.terms:
            places.setdefault(key, len(places))
    # One equation for each product (the sum has none of it), the last: the constants make -1.
    equations: list[dict[int, Fraction]] = [{} for _ in range(len(places) + 1)]
    for column, row in enumerate(rows):
        for key, coefficient in row.terms.items():
            equations[places[key]][column] = Fraction(coefficient)
        if row.constant:
            equations[-1][column] = Fraction(-row.constant)
    right = [Fraction(0)] * len(places) + [Fraction(1)]
    if (found := _solved(equations, right, len(rows))) is None:
        return None
    return [found.get(column, Fraction(0)) for column in range(len(rows))]


def adds_up(rows: Sequence[Polynomial], multiples: Sequence[Fraction]) -> bool:
    """Whether the multiples show a contradiction: none negative, and the sum a negative number."""
    if len(rows) != len(multiples) or any(multiple < 0 for multiple in multiples):
        return False
    scale = 1
    for multiple in multiples:
        scale *= multiple.denominator
    total = NOTHING
    for row, multiple in zip(rows, multiples, strict=True):
        total = total.plus(row, int(multiple * scale))
    return not total.terms and total.constant < 0


def _solved(
    equations: list[dict[int, Fraction]], right: list[Fraction], width: int
) -> dict[int, Fraction] | None:
    """A solution without negative numbers, by the first phase of the simplex method.

    The pivot is always the first that serves (Bland), so it cannot go round in circles.
    """
    count = len(equations)
    rows = [{**row, width + i: Fraction(1)} for i, row in enumerate(equations)]
    basis = [width + i for i in range(count)]
    goal: dict[int, Fraction] = {}
    for row in equations:
        for column, value in row.items():
            goal[column] = goal.get(column, Fraction(0)) + value
    for _ in range(MAX_PIVOTS):
        enter = min((c for c, v in goal.items() if v > 0 and c < width), default=None)
        if enter is None:
            break
        leave: int | None = None
        for i, row in enumerate(rows):
            if row.get(enter, 0) > 0 and (
                leave is None
                or (right[i] / row[enter], basis[i])
                < (right[leave] / rows[leave][enter], basis[leave])
            ):
                leave = i
        if leave is None:
            return None
        _pivot(rows, right, goal, leave, enter)
        basis[leave] = enter
    else:
        return None
    if any(right[i] for i in range(count) if basis[i] >= width):
        return None
    return {basis[i]: right[i] for i in range(count) if basis[i] < width}


def _pivot(
    rows: list[dict[int, Fraction]],
    right: list[Fraction],
    goal: dict[int, Fraction],
    leave: int,
    enter: int,
) -> None:
    head = rows[leave]
    factor = head[enter]
    head = {column: value / factor for column, value in head.items()}
    rows[leave] = head
    right[leave] /= factor
    for i, row in enumerate(rows):
        times = row.get(enter)
        if i != leave and times:
            right[i] -= times * right[leave]
            _subtract(row, head, times)
    if times := goal.get(enter):
        _subtract(goal, head, times)


def _subtract(row: dict[int, Fraction], head: dict[int, Fraction], times: Fraction) -> None:
    for column, value in head.items():
        if new := row.get(column, Fraction(0)) - times * value:
            row[column] = new
        else:
            row.pop(column, None)
