"""Transforms: a matrix of few small numbers times a column, as sums that are cheap.

Multiplications by 0 and 1 are not written.  Rows that differ in signs alone share two sums, and so
do columns:

    a + 2 b, a - 2 b          -->  (a) + (2 b), (a) - (2 b)           rows
    a + b + 4 (c + d), …      -->  sums and differences of pairs      columns
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, Sub, dtype_of
from plica.ir.op.winograd import Matrix


def products(matrix: Matrix, values: Sequence[Scalar]) -> list[Scalar]:
    """A matrix times a column, with the sums that rows share written alike.

    >>> from plica.ir.op.winograd import matrix
    >>> from plica.ir.loop.tensor import axis
    >>> made = products(matrix("1 2; 1 -2"), [axis("x"), axis("y")])
    >>> made[0].left is made[1].left, made[0].right is made[1].right
    (True, True)
    """
    made: dict[int, Scalar] = {}
    pairs = _pairs(tuple(zip(*matrix, strict=True)))
    for one, two in _pairs(matrix):
        row, other = matrix[one], matrix[two]
        both = list(zip(row, other, strict=True))
        apart = [a if a != b else Fraction(0) for a, b in both]
        scale = min(abs(fraction) for fraction in apart if fraction)
        same = _summed([a if a == b else Fraction(0) for a, b in both], values)
        rest = _scaled(scale, _summed([fraction / scale for fraction in apart], values))
        made[one], made[two] = Add(same, rest), Sub(same, rest)
    for number, row in enumerate(matrix):
        if number not in made:
            made[number] = _summed(*_joined(row, values, pairs))
    return [made[number] for number in range(len(matrix))]


@lru_cache(maxsize=64)
def _pairs(rows: Matrix) -> list[tuple[int, int]]:
    """Rows that differ in some signs, and only in these."""
    found_: list[tuple[int, int]] = []
    for one, row in enumerate(rows):
        for two in range(one + 1, len(rows)):
            both = [(a, b) for a, b in zip(row, rows[two], strict=True) if a or b]
            same, apart = ([sign * a == b for a, b in both] for sign in (1, -1))
            if any(same) and any(apart) and all(a or b for a, b in zip(same, apart, strict=True)):
                found_.append((one, two))
    return found_


def _joined(
    row: Sequence[Fraction], values: Sequence[Scalar], pairs: Sequence[tuple[int, int]]
) -> tuple[list[Fraction], list[Scalar]]:
    """The terms of a row, where pairs of values are sums and differences."""
    terms = dict(enumerate(zip(row, values, strict=True)))
    for one, two in pairs:
        if row[one]:
            pair = Add if row[one] == row[two] else Sub
            terms[one] = (row[one], pair(values[one], values[two]))
            del terms[two]
    return [factor for factor, _ in terms.values()], [value for _, value in terms.values()]


def _summed(row: Sequence[Fraction], values: Sequence[Scalar]) -> Scalar:
    """Numbers times values, without zeros; unscaled ones first."""
    terms = [(factor, value) for factor, value in zip(row, values, strict=True) if factor]
    terms.sort(key=lambda each: each[0] != 1)
    factor, value = terms[0]
    whole = _scaled(factor, value)
    for factor, value in terms[1:]:
        whole = (Add if factor > 0 else Sub)(whole, _scaled(abs(factor), value))
    return whole


def _scaled(factor: Fraction, value: Scalar) -> Scalar:
    return value if factor == 1 else Mul(Lit(float(factor), dtype_of(value)), value)
