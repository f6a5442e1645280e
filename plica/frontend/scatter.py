"""Scattering and ranking, said as sums and maxima over comparisons.

Each place of the result looks for what is meant for it.  That is a product of places and
candidates, so it is for tables of moderate size: callers refuse more than `MOST_PAIRS`.

>>> from plica.ir.graph.expression import const
>>> put("add", const([[1.0], [2.0]]), const([1, 1]), const([[5.0], [7.0]])).op
'add'
"""

from __future__ import annotations

import math
from typing import Final

from plica.frontend.word import dtype, like, shape, to
from plica.ir.graph.expression import Expr
from plica.ir.op.comparison import equal, greater_equal, less, logical_and, logical_not, logical_or
from plica.ir.op.create import iota, iota_like
from plica.ir.op.elementwise import add, isnan, maximum, minimum, multiply
from plica.ir.op.index import take_along_axis, where
from plica.ir.op.reduction import any_, max_, min_, prod, sum_
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape, transpose
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64

MOST_PAIRS: Final = 1 << 28
"""Places times candidates; a program that needs more is better refused."""

COMBINE: Final = {
    "add": (sum_, add, 0.0),
    "mul": (prod, multiply, 1.0),
    "max": (max_, maximum, -math.inf),
    "min": (min_, minimum, math.inf),
}


def put(kind: str, table: Expr, rows: Expr, updates: Expr) -> Expr:
    """A table (places, width) with the rows named changed; `replace` keeps the last for each.

    A row outside the table is meant for no place.
    """
    places, width = (known(size) for size in shape(table))
    count = known(shape(rows)[0])
    assert places is not None
    assert width is not None
    assert count is not None
    numbers = reshape(iota(shape=(places,), dtype=i64), (1, places, 1))
    hit = broadcast_to(equal(reshape(rows, (count, 1, 1)), numbers), (count, places, width))
    candidates = broadcast_to(reshape(updates, (count, 1, width)), (count, places, width))
    return scattered(kind, table, hit, candidates)


def scattered(kind: str, data: Expr, hit: Expr, updates: Expr) -> Expr:
    """`data` with updates: `hit` and `updates` have one axis more, the candidates, in front."""
    if kind == "replace":
        numbers = iota_like(hit, axis=0, dtype=i64)
        last = max_(where(hit, numbers, like(-1, numbers)), axis=(0,))
        chosen = expand_dims(maximum(last, like(0, last)), axis=(0,))
        found = reshape(take_along_axis(updates, chosen, axis=0), shape(last))
        return where(greater_equal(last, like(0, last)), found, data)
    fold, join, neutral = COMBINE[kind]
    nothing = neutral
    if math.isinf(neutral) and not dtype(data).is_float:
        nothing = dtype(data).bounds[0 if neutral < 0 else 1]
    return join(data, fold(where(hit, updates, like(nothing, data)), axis=(0,)))


def touched(hit: Expr) -> Expr:
    """Whether anything is meant for a place; the candidates are the axis in front."""
    return any_(hit, axis=(0,))


def hits(indices: Expr, sizes: tuple[int, ...], axis: int) -> Expr:
    """For indices of the shape of the data but along an axis: (k, *data), who is meant for what."""
    order = (axis, *(at for at in range(len(sizes)) if at != axis))
    front = expand_dims(transpose(indices, order), axis=(axis + 1,))
    form = tuple(sizes[axis] if at == axis + 1 else 1 for at in range(len(sizes) + 1))
    places = reshape(iota(shape=(sizes[axis],), dtype=i64), form)
    count = known(shape(indices)[axis])
    assert count is not None
    return broadcast_to(equal(front, places), (count, *sizes))


def ranking(x: Expr, k: int, largest: bool) -> tuple[Expr, Expr]:
    """The first k along the last axis in order, and their places; equals keep their order.

    A nan counts as the greatest number.
    """
    length = known(shape(x)[-1])
    assert length is not None
    mine, other = expand_dims(x, axis=(-1,)), expand_dims(x, axis=(-2,))
    beyond = less(mine, other) if largest else less(other, mine)
    same = equal(mine, other)
    if dtype(x).is_float:
        nan, nan_too = isnan(mine), isnan(other)
        above = (nan_too, nan) if largest else (nan, nan_too)
        beyond = logical_or(beyond, logical_and(above[0], logical_not(above[1])))
        same = logical_or(same, logical_and(nan, nan_too))
    rows, columns = (iota(shape=(length, length), axis=at, dtype=i64) for at in (0, 1))
    before = logical_or(beyond, logical_and(same, less(columns, rows)))
    ranks = sum_(to(before, i64), axis=(-1,))
    hit = equal(expand_dims(ranks, axis=(-1,)), iota(shape=(1, k), axis=1, dtype=i64))
    places = iota_like(hit, axis=-2, dtype=i64)
    chosen = sum_(where(hit, places, like(0, places)), axis=(-2,))
    return take_along_axis(x, chosen, axis=-1), chosen
