"""Scatter: values that are put at places by one look at each of them, in turn.

    before:  scatter_nd(x, i, u, how)
    after:   scatter_rows(x as a table of rows, the rows that i names, u as rows, how)

    before:  scatter_elements(x, i, u, axis, how)
    after:   the same with rows of one element

What these operators are written out as compares every place with every value, or brings values into
order first: on a processor that goes through them one by one the other way costs less.

Measure: each rule removes an operator that puts values at places.

>>> [rule.name for rule in SCATTER][:2]
['scatter-nd-replace', 'scatter-nd-max']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from plica.ir.graph.expression import Expr, const
from plica.ir.op.comparison import less, less_equal, logical_and
from plica.ir.op.create import iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, multiply
from plica.ir.op.index import take, where
from plica.ir.op.order import ZERO
from plica.ir.op.put import scatter_elements, scatter_nd
from plica.ir.op.record import scalar
from plica.ir.op.relation import NUMBER
from plica.ir.op.scatter import scatter_rows
from plica.ir.op.shape import reshape
from plica.ir.type.dtype import i64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.rewrite.contract import exact, reassociates
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

ZEROS: Final = const(np.zeros(2, np.int64))
"""What is taken from it is nothing; whoever takes from behind it is refused."""


def _sizes(*values: Expr) -> list[tuple[int, ...]] | None:
    """The shapes of some values; None where a size is open or nothing is there."""
    shapes = []
    for each in values:
        of = type_of(each)
        shape = static_shape(of) if isinstance(of, TensorType) else None
        if shape is None or 0 in shape:
            return None
        shapes.append(shape)
    return shapes


def _rows(m: PatternMatch) -> tuple[Expr, Expr, Expr] | None:
    """x as a table of rows, which row each of the indices names, and the updates as rows."""
    shapes = _sizes(m.x, m.i, m.u)
    if shapes is None:
        return None
    whole, given, _ = shapes
    depth = given[-1]
    outer, inner, count = (prod(e) for e in (whole[:depth], whole[depth:], given[:-1]))
    columns = reshape(m.i, (count, depth))
    named = []
    for at in range(depth):
        column = reshape(slice_(columns, (at,), (at + 1,), axes=(1,)), (count,))
        named.append(_places(column, whole[at]))
    rows = _linear(named, whole[:depth])
    return reshape(m.x, (outer, inner)), rows, reshape(m.u, (count, inner))


def _places(indices: Expr, size: int) -> Expr:
    """The places that indices name along an axis: they may count from its end.

    One that is outside is refused.
    """
    given, below, whole = cast(indices, i64), scalar(-size, i64), scalar(size, i64)
    inside = logical_and(less_equal(below, given), less(given, whole))
    nothing = take(ZEROS, where(inside, ZERO, scalar(2, i64)))
    return add(where(less(given, ZERO), add(given, whole), given), nothing)


def _linear(places: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    """Places along axes as those along one, row by row."""
    found = places[0]
    for each, size in zip(places[1:], sizes[1:], strict=True):
        found = add(multiply(found, scalar(size, i64)), each)
    return found


def _elements(m: PatternMatch) -> tuple[Expr, Expr, Expr] | None:
    """The same with all axes as one: a row is one element."""
    shapes = _sizes(m.x, m.i, m.u)
    if shapes is None:
        return None
    whole, given, _ = shapes
    at = m.a % len(whole)
    along = _places(m.i, whole[at])
    places = [along if other == at else iota_like(along, axis=other) for other in range(len(whole))]
    linear, count = _linear(places, whole), prod(given)
    return (
        reshape(m.x, (prod(whole), 1)),
        reshape(linear, (count,)),
        reshape(m.u, (count, 1)),
    )


def _shape(of: Expr) -> tuple[int, ...]:
    type_ = type_of(of)
    assert isinstance(type_, TensorType)
    found = static_shape(type_)
    assert found is not None
    return found


def _put(
    as_rows: Callable[[PatternMatch], tuple[Expr, Expr, Expr] | None], how: str
) -> Callable[[PatternMatch], Expr | None]:
    """Rows that are put into a table, or joined with its own."""

    def rows_put(m: PatternMatch) -> Expr | None:
        found = as_rows(m)
        if found is None:
            return None
        table, rows, updates = found
        return reshape(scatter_rows(table, rows, updates, reduction=how), _shape(m.x))

    return rows_put


x, i, u, a = holes("x i u a")
y: Any = hole("x", dtypes=NUMBER)  # Any: as all holes

# fmt: off
HOW: Final = (
    ("replace", x, exact), ("max", y, exact), ("min", y, exact),
    ("add", y, reassociates), ("mul", y, reassociates),
)
"""How values are joined, with what, and what that does to floats."""

SCATTER: Final[Pack] = pack(
    "scatter",
    *[rule(f"scatter-nd-{how}", scatter_nd(z, i, u, how), _put(_rows, how), float=order)
      for how, z, order in HOW],
    *[rule(f"scatter-elements-{how}", scatter_elements(z, i, u, a, how), _put(_elements, how),
           float=order) for how, z, order in HOW],
    version="2",
    doc="Values are put at places by one look at each of them.",
)
# fmt: on
