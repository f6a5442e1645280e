"""Selection: the k greatest elements are maintained one by one while a row is read.

    before:  topk(x, k)
    after:   first_places(x, k), and the elements that are there
             first_places(x, k, axis=1) of short columns, a vector of them at once

The decomposition of `topk` searches all elements repeatedly, or ranks each by counting: with a list
of the k greatest so far, most elements cost one comparison. The definition of `first_places`
compares all pairs, so this is only for targets with a form for it
(`plica.schedule.default.selection`).

Measure: the rule removes a `topk`.

>>> [rule.name for rule in SELECTION]
['topk-one-by-one']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.op.index import take_along_axis
from plica.ir.op.shape import reshape, transpose
from plica.ir.op.top_k import first_places, topk
from plica.ir.type import TensorType, f32, f64, i32, i64, static_shape, tensor, type_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

MAX_SELECTED: Final = 128  # the maximum number of kept elements: an insertion moves all behind it
MIN_ROW_LENGTH: Final = 8
"""Shorter rows are compared each with each, where they are no columns side by side."""

MAX_KEPT_PER_COLUMN: Final = 8
"""The maximum number of kept elements per column, with one column per vector lane."""

MAX_COMPARISONS_PER_COLUMN: Final = 2048
"""The maximum number of comparisons between an element of a column and kept ones: in a long row
insertions are rare, but a vector of columns always inserts. Half as many if rows must be transposed
to columns first."""

MIN_COLUMNS: Final = 8  # the number of columns that make a vector worthwhile
DTYPES: Final = (f32, f64, i32, i64)


def one_by_one(m: PatternMatch) -> Expr | None:
    """The indices of the first k along an axis, and their elements."""
    of = type_of(m.x)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    if shape is None or 0 in shape:
        return None
    at = m.axis % len(shape)
    columns = are_columns(m.k, shape, at)
    if not 0 < m.k <= MAX_SELECTED or (shape[at] < MIN_ROW_LENGTH and not columns):
        return None
    order = (*[other for other in range(len(shape)) if other != at], at)
    if columns:
        places = side_by_side(m, shape, at)
    elif at == len(shape) - 1:
        places = first_places(m.x, k=m.k, descending=m.largest)
    else:
        back = tuple([order.index(other) for other in range(len(shape))])
        rows = first_places(transpose(m.x, order), k=m.k, descending=m.largest)
        places = transpose(rows, back)
    return Tuple((take_along_axis(m.x, places, axis=at, mode="clip"), places))


def are_columns(k: int, shape: tuple[int, ...], at: int) -> bool:
    """Whether finding the first k of several columns in vector lanes is faster than row by row."""
    turned = prod(shape[at + 1 :]) < MIN_COLUMNS
    return (
        k <= MAX_KEPT_PER_COLUMN
        and k * shape[at] <= MAX_COMPARISONS_PER_COLUMN // (1 + turned)
        and prod(shape) >= MIN_COLUMNS * shape[at]
    )


def side_by_side(m: PatternMatch, shape: tuple[int, ...], at: int) -> Expr:
    """The places of the first k of columns, which are neighbours in memory."""
    rest = (*shape[:at], *shape[at + 1 :])
    before, behind = prod(shape[:at]), prod(shape[at + 1 :])
    if behind >= MIN_COLUMNS:
        x = reshape(m.x, (before, shape[at], behind))
        places = first_places(x, k=m.k, descending=m.largest, axis=1)
        return reshape(places, (*shape[:at], m.k, *shape[at + 1 :]))
    first = (at, *[other for other in range(len(shape)) if other != at])
    back = tuple([first.index(other) for other in range(len(shape))])
    x = reshape(transpose(m.x, first), (shape[at], before * behind))
    places = first_places(x, k=m.k, descending=m.largest, axis=0)
    return transpose(reshape(places, (m.k, *rest)), back)


def some_rows(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:  # Any: whatever it draws
    """Rows that are long enough, which nothing but this would draw."""
    shape = [choose((1, 3, 9)), choose((8, 9, 12))]
    axis = choose((0, 1))
    shape = shape if axis else shape[::-1]
    return {
        "x": tensor(tuple(shape), choose((f32, f64, i32))), "k": choose((1, 3, 8)), "axis": axis,
        "largest": choose((True, False)),
    }  # fmt: skip


x: Any = hole("x", dtypes=DTYPES)  # Any: as all holes
k, axis, largest = holes("k axis largest")

SELECTION: Final[Pack] = pack(
    "selection",
    rule("topk-one-by-one", topk(x, k, axis, largest), one_by_one, instances=some_rows),
    version="1",
    doc="The greatest elements are kept one by one.",
)
