"""Elimination: systems of linear inequalities over the integers shown to have no solution.

A row states `coefficients · q + constant >= 0`; the constant is a vector, one number for each of
many systems that differ only there (one per residue). Fourier-Motzkin elimination adds multiples of
rows so that unknowns vanish; a row without unknowns and with a negative constant is a
contradiction. Rows are divided by the gcd of their coefficients and the constant is rounded down,
which preserves integer solutions.

>>> no = refute([(1,), (-1,)], [np.array([0, 0]), np.array([-1, 3])])   # 0 <= q <= -1, 0 <= q <= 3
>>> no.open.tolist()
[False, True]

A refutation is a list of sums; `contradicted` replays it, and is all one has to trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

Row: TypeAlias = tuple[int, ...]
Vector: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # int64 or Python's integers


class RowSum(NamedTuple):
    """Row `i` times `p` plus row `j` times `q`; with `p` and `q` 0 the stricter of equal rows."""

    i: int
    p: int
    j: int
    q: int


class EliminationStage(NamedTuple):
    """An unknown that was eliminated, and the rows that spoke of it."""

    unknown: int
    rows: tuple[int, ...]


class Refutation(NamedTuple):
    """The sums made, the stages, and which systems are still open."""

    sums: tuple[RowSum, ...]
    stages: tuple[EliminationStage, ...]
    rows: tuple[tuple[Row, Vector], ...]
    open: Vector
    complete: bool  # False: given up for size


MAX_ROWS: Final = 160
_LIMIT: Final = 1 << 62


def refute(matrix: Sequence[Row], constants: Sequence[Vector]) -> Refutation:
    """Eliminate all unknowns, and see which systems are contradictory."""
    rows = [_tight(row, constant) for row, constant in zip(matrix, constants, strict=True)]
    sums: list[RowSum] = []
    stages: list[EliminationStage] = []
    size = len(constants[0]) if constants else 1
    still = np.ones(size, dtype=np.bool_)
    alive = _settled(list(range(len(rows))), rows, sums, still)
    unknowns = set(range(len(matrix[0]) if matrix else 0))
    while unknowns and still.any():
        best = min(sorted(unknowns), key=lambda u: _cost(u, alive, rows))
        unknowns.discard(best)
        up = [i for i in alive if rows[i][0][best] > 0]
        down = [i for i in alive if rows[i][0][best] < 0]
        stages.append(EliminationStage(best, (*up, *down)))
        kept = [i for i in alive if rows[i][0][best] == 0]
        if len(kept) + len(up) * len(down) > MAX_ROWS:
            return Refutation(tuple(sums), tuple(stages), tuple(rows), still, False)
        for i in up:
            for j in down:
                a, b = rows[i][0][best], -rows[j][0][best]
                common = gcd(a, b)
                made = RowSum(i, b // common, j, a // common)
                sums.append(made)
                rows.append(_sum(made, rows))
                kept.append(len(rows) - 1)
        alive = _settled(kept, rows, sums, still)
    return Refutation(tuple(sums), tuple(stages), tuple(rows), still, True)


def contradicted(
    matrix: Sequence[Row], constants: Sequence[Vector], sums: Sequence[RowSum]
) -> Vector:
    """Which systems the sums show to have no integer solution."""
    rows = [_tight(row, constant) for row, constant in zip(matrix, constants, strict=True)]
    for each in sums:
        if each.p < 0 or each.q < 0:
            raise ValueError("A multiple of a row must not be negative.")
        rows.append(_sum(each, rows))
    array = np.zeros(len(constants[0]) if constants else 1, dtype=np.bool_)
    for row, constant in rows:
        if not any(row):
            array |= np.asarray(constant < 0, dtype=np.bool_)
    return array


def solutions(of: Refutation, number: int, most: int = 64) -> list[dict[int, int]]:
    """Some integer solutions of one open system, by going back through the stages."""
    partial: list[dict[int, int]] = [{}]
    for stage in reversed(of.stages):
        longer: list[dict[int, int]] = []
        for chosen in partial:
            low: int | None = None
            high: int | None = None
            for i in stage.rows:
                row, constant = of.rows[i]
                rest = int(constant[number])
                rest += sum(c * chosen.get(u, 0) for u, c in enumerate(row) if u != stage.unknown)
                factor = row[stage.unknown]
                if factor > 0:
                    bound = -(rest // factor)
                    low = bound if low is None else max(low, bound)
                else:
                    bound = rest // -factor
                    high = bound if high is None else min(high, bound)
            for value in _picks(low, high):
                longer.append({**chosen, stage.unknown: value})
        partial = longer[:most]
    return partial


def _picks(low: int | None, high: int | None) -> list[int]:
    """A few integers of an interval, the one nearest to 0 first."""
    if low is not None and high is not None and low > high:
        return []
    near = 0
    if low is not None:
        near = max(near, low)
    if high is not None:
        near = min(near, high)
    found = [near]
    for value in (near + 1, near - 1, low, high):
        if value is None or value in found:
            continue
        if (low is None or low <= value) and (high is None or value <= high):
            found.append(value)
    return found


def _cost(unknown: int, alive: list[int], rows: list[tuple[Row, Vector]]) -> int:
    up = sum(1 for i in alive if rows[i][0][unknown] > 0)
    down = sum(1 for i in alive if rows[i][0][unknown] < 0)
    return up * down - up - down


def _settled(
    wanted: list[int], rows: list[tuple[Row, Vector]], sums: list[RowSum], still: Vector
) -> list[int]:
    """The rows that still say something, of equal coefficients the stricter; marks refuted ones."""
    best: dict[Row, int] = {}
    for i in wanted:
        row, constant = rows[i]
        if not any(row):
            still &= ~np.asarray(constant < 0, dtype=np.bool_)
            continue
        if (j := best.get(row)) is None:
            best[row] = i
        elif not (constant >= rows[j][1]).all():
            if (constant <= rows[j][1]).all():
                best[row] = i
            else:
                made = RowSum(i, 0, j, 0)
                sums.append(made)
                rows.append(_sum(made, rows))
                best[row] = len(rows) - 1
    return list(best.values())


def _sum(of: RowSum, rows: list[tuple[Row, Vector]]) -> tuple[Row, Vector]:
    (a, x), (b, y) = rows[of.i], rows[of.j]
    if of.p == 0 and of.q == 0:  # the stricter of two rows that differ in their constants only
        if a != b:
            raise ValueError("Only rows of equal coefficients have a stricter one.")
        return a, np.minimum(x, y)
    row = tuple([of.p * m + of.q * n for m, n in zip(a, b, strict=True)])
    if of.p * _size(x) + of.q * _size(y) >= _LIMIT:
        x, y = x.astype(object), y.astype(object)
    return _tight(row, of.p * x + of.q * y)


def _tight(row: Row, constant: Vector) -> tuple[Row, Vector]:
    common = gcd(*row)
    if common <= 1:
        return tuple(row), constant
    return tuple([c // common for c in row]), constant // common


def _size(of: Vector) -> int:
    return max(abs(int(of.min())), abs(int(of.max()))) if len(of) else 0
