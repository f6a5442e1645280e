"""Scatter: values that are put at places by one look at each of them, in turn.

    before:  scatter_nd(x, i, u, reduction="add")
    after:   x + scatter_sum(u, the rows that i names, size)

    before:  scatter_nd(x, i, u)
    after:   where(last >= 0, take(u, last), x)      last = last_index(the rows that i names, size)
             where(place == the row that i names, u, x)                       where i is but a few

What these operators are written out as compares every place with every value, or brings values into
order first: on a processor that goes through them one by one the other way costs less.

Measure: each rule removes an operator that puts values at places.

>>> [rule.name for rule in SCATTER][:2]
['scatter-nd-replaced', 'scatter-nd-added']
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from plica.ir.graph.expression import Expr
from plica.ir.op.comparison import equal, greater_equal
from plica.ir.op.create import iota, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, maximum, multiply
from plica.ir.op.index import take, where
from plica.ir.op.order import ZERO
from plica.ir.op.put import scatter_elements, scatter_nd
from plica.ir.op.record import scalar
from plica.ir.op.relation import NUMBER
from plica.ir.op.scatter import last_index, scatter_sum
from plica.ir.op.shape import reshape
from plica.ir.type.dtype import i64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape
from plica.rewrite.contract import reassociates
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

FEW: Final = 4
"""So many values are put at their places one by one."""


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
    """x as a table of rows, which row each of the indices names, and the updates as rows.

    Taking the numbers of places refuses indices that are outside, and counts from the end.
    """
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
        named.append(take(iota((whole[at],)), column))
    rows = _linear(named, whole[:depth])
    return reshape(m.x, (outer, inner)), rows, reshape(m.u, (count, inner))


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
    along = take(iota((whole[at],)), m.i)
    places = [along if other == at else iota_like(along, axis=other) for other in range(len(whole))]
    linear, count = _linear(places, whole), prod(given)
    return (
        reshape(m.x, (prod(whole), 1)),
        reshape(linear, (count,)),
        reshape(m.u, (count, 1)),
    )


def _added(of: tuple[Expr, Expr, Expr] | None, m: PatternMatch) -> Expr | None:
    if of is None:
        return None
    table, rows, updates = of
    size, _ = _shape(table)
    return reshape(add(table, scatter_sum(updates, rows, size)), _shape(m.x))


def _replaced(of: tuple[Expr, Expr, Expr] | None, m: PatternMatch) -> Expr | None:
    if of is None:
        return None
    table, rows, updates = of
    size, _ = _shape(table)
    (count,) = _shape(rows)
    if count <= FEW:
        return reshape(_one_by_one(table, rows, updates), _shape(m.x))
    last = last_index(rows, size)
    taken = take(updates, maximum(last, ZERO), mode="clip")
    named = reshape(greater_equal(last, ZERO), (size, 1))
    return reshape(where(named, taken, table), _shape(m.x))


def _one_by_one(table: Expr, rows: Expr, updates: Expr) -> Expr:
    """A table of which few rows are replaced: whoever is named by a row takes its update."""
    size, _ = _shape(table)
    places = iota((size,))
    for at in range(*_shape(rows)):
        one = reshape(slice_(rows, (at,), (at + 1,)), ())
        named = reshape(equal(places, one), (size, 1))
        table = where(named, slice_(updates, (at,), (at + 1,), axes=(0,)), table)
    return table


def _shape(of: Expr) -> tuple[int, ...]:
    type_ = type_of(of)
    assert isinstance(type_, TensorType)
    found = static_shape(type_)
    assert found is not None
    return found


def rows_replaced(m: PatternMatch) -> Expr | None:
    return _replaced(_rows(m), m)


def rows_added(m: PatternMatch) -> Expr | None:
    return _added(_rows(m), m)


def elements_replaced(m: PatternMatch) -> Expr | None:
    return _replaced(_elements(m), m)


def elements_added(m: PatternMatch) -> Expr | None:
    return _added(_elements(m), m)


x, i, u, a = holes("x i u a")
y: Any = hole("x", dtypes=NUMBER)  # Any: as all holes
rows_put, rows_sum = scatter_nd(x, i, u, "replace"), scatter_nd(y, i, u, "add")
put, added = scatter_elements(x, i, u, a, "replace"), scatter_elements(y, i, u, a, "add")

# fmt: off
SCATTER: Final[Pack] = pack(
    "scatter",
    rule("scatter-nd-replaced",       rows_put, rows_replaced),
    rule("scatter-nd-added",          rows_sum, rows_added,     float=reassociates),
    rule("scatter-elements-replaced", put,      elements_replaced),
    rule("scatter-elements-added",    added,    elements_added, float=reassociates),
    version="1",
    doc="Values are put at places by one look at each of them.",
)
# fmt: on
