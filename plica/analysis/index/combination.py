"""Combinations: polynomials that are not negative, added up to a negative number.

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.polynomial import polynomial
>>> x = dim_var("x")
>>> [str(m) for m in contradiction([polynomial(x - 3), polynomial(4 - 2 * x)])]
['1', '1/2']

Found by the simplex method over exact fractions (Farkas' lemma: multiples exist exactly if the
rows, with each product as an unknown of its own, have no rational solution).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from plica.analysis.index.polynomial import NOTHING, Key, Polynomial

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
    if len(rows) != len(multiples) or any(each < 0 for each in multiples):
        return False
    scale = 1
    for each in multiples:
        scale *= each.denominator
    total = NOTHING
    for row, each in zip(rows, multiples, strict=True):
        total = total.plus(row, int(each * scale))
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
