"""Selection: the greatest elements are kept one by one, as a processor goes through a row.

    before:  topk(x, k)
    after:   first_places(x, k), and the elements that are there
             first_places(x, k, axis=1) of short columns, a vector of them at once

What `topk` is written out as finds one after another among all elements, or counts for each those
before it: on a processor that keeps the k greatest so far most elements cost one comparison.  The
definition of `first_places` compares each with each, so this is for those alone who have a form of
it (`plica.schedule.default.selection`).

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

MAX_SELECTED: Final = 128
"""So many are kept, at most: to put one more among them moves all behind it."""

MIN_ROW_LENGTH: Final = 8
"""Shorter rows are compared each with each, where they are no columns side by side."""

KEPT_EACH: Final = 8
"""So many are kept of each column, at most, where columns are side by side in a vector."""

PUT_EACH: Final = 2048
"""So often an element of a column is compared with one that is kept, at most: the longer a row is
the more seldom what is kept changes, but a vector of columns puts every element among it.  Half as
often where rows have to become columns first."""

BESIDE: Final = 8
"""So many columns are worth a vector."""

DTYPES: Final = (f32, f64, i32, i64)


def one_by_one(m: PatternMatch) -> Expr | None:
    """The places of the first k along an axis, and what is there."""
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
    """Whether lanes of a vector find the first k of a column each sooner than one row is gone
    through after another."""
    turned = prod(shape[at + 1 :]) < BESIDE
    return (
        k <= KEPT_EACH
        and k * shape[at] <= PUT_EACH // (1 + turned)
        and prod(shape) >= BESIDE * shape[at]
    )


def side_by_side(m: PatternMatch, shape: tuple[int, ...], at: int) -> Expr:
    """The places of the first k of columns, which are neighbours in memory."""
    rest = (*shape[:at], *shape[at + 1 :])
    before, behind = prod(shape[:at]), prod(shape[at + 1 :])
    if behind >= BESIDE:
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
