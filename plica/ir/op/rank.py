"""Ranks: each element counts those before it, and each place looks for the one whose it is.

Short rows are brought into order in this way, since comparisons fill vectors, and rows whose length
is open, since how often runs would be merged is not known.  The order is that of
`plica.ir.op.order`: equal elements keep theirs, a nan is the greatest.
"""

from __future__ import annotations

import math
from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.op.comparison import equal, less, logical_and, logical_not, logical_or
from plica.ir.op.create import iota
from plica.ir.op.elementwise import add, cast, isnan
from plica.ir.op.index import where
from plica.ir.op.record import scalar, tensor_of
from plica.ir.op.reduction import sum_
from plica.ir.op.shape import expand_dims
from plica.ir.type import i32, i64

PLACE_LIMIT: Final = 1 << 30  # further than any two places are: rows that long are sorted


def without_nan(keys: Expr, ties: Expr, largest: bool) -> tuple[Expr, Expr]:
    """Keys with NaN replaced by infinity, and tie-breakers that sort NaN before or behind all
    infinities."""
    of = tensor_of(keys).dtype
    if not of.is_float:
        return keys, ties
    none = isnan(keys)
    apart = scalar(-PLACE_LIMIT if largest else PLACE_LIMIT, i32)
    return where(none, scalar(math.inf, of), keys), where(none, add(ties, apart), ties)


def by_counting(keys: Expr, places: Expr, k: int, largest: bool) -> Expr:
    """The k places with the greatest (or smallest) keys of a row of static length, by counting."""
    own = cast(places, i32)  # all are below `PLACE_LIMIT`, and twice as many fit into a vector
    keys, ties = without_nan(keys, own, largest)
    mine, other = expand_dims(keys, (-2,)), expand_dims(keys, (-1,))
    beyond = less(mine, other) if largest else less(other, mine)
    earlier = less(expand_dims(ties, (-1,)), expand_dims(ties, (-2,)))
    before = logical_or(beyond, logical_and(equal(mine, other), earlier))
    ranks = sum_(where(before, scalar(1, i32), scalar(0, i32)), axis=(-2,))
    hit = equal(expand_dims(ranks, (-2,)), expand_dims(iota((k,), dtype=i32), (-1,)))
    return cast(sum_(where(hit, expand_dims(own, (-2,)), scalar(0, i32)), axis=(-1,)), i64)


def open_row(keys: Expr, descending: bool) -> Expr:
    """The places of the elements along a last axis of any size, in their order."""
    of = tensor_of(keys)
    mine, other = expand_dims(keys, (-1,)), expand_dims(keys, (-2,))
    above, below = (other, mine) if descending else (mine, other)
    beyond, same_ = less(below, above), equal(mine, other)
    if of.dtype.is_float:
        beyond = logical_or(beyond, logical_and(isnan(above), logical_not(isnan(below))))
        same_ = logical_or(same_, logical_and(isnan(mine), isnan(other)))
    square = (of.shape[-1], of.shape[-1])
    earlier = less(iota(square, axis=1), iota(square, axis=0))
    ranks = sum_(cast(logical_or(beyond, logical_and(same_, earlier)), i64), axis=(-1,))
    hit = equal(expand_dims(ranks, (-1,)), iota(square, axis=1))
    return sum_(where(hit, iota(square, axis=0), scalar(0, i64)), axis=(-2,))
