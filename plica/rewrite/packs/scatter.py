"""Scatter: writes values at indices one after another.

    before:  scatter_nd(x, i, u, how)
    after:   scatter_rows(x as a table of rows, the rows that i names, u as rows, how)

    before:  scatter_elements(x, i, u, axis, how)
    after:   the same with rows of one element

    before:  argwhere(x)
    after:   scatter_rows(-1, how many that are not zero come before each, its place), and the last

The decompositions of these operators compare every place with every index, or sort the indices
first: a processor that handles them one by one is faster.

Measure: each rule removes an operator that puts values at places.

>>> [rule.name for rule in SCATTER][:2]
['scatter-nd-put', 'scatter-nd-joined']
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from plica.ir.contract import reassociates
from plica.ir.graph.expression import Const, Expr, Tuple, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.comparison import less, less_equal, logical_and, not_equal
from plica.ir.op.create import dim_value, full, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, multiply, negative, subtract
from plica.ir.op.index import take, where
from plica.ir.op.join import stack
from plica.ir.op.order import ZERO, argwhere
from plica.ir.op.put import scatter_elements, scatter_nd
from plica.ir.op.record import scalar
from plica.ir.op.reduction import cumsum, max_
from plica.ir.op.relation import NUMBER
from plica.ir.op.scatter import scatter_rows
from plica.ir.op.shape import reshape
from plica.ir.type import TensorType, bool_, i64, known, product, static_shape, type_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

ZEROS: Final = const(np.zeros(2, np.int64))
"""A table of which nothing is used; indices behind it are refused."""


def _shape(of: Expr) -> tuple[Scalar, ...]:
    type_ = type_of(of)
    assert isinstance(type_, TensorType)
    return type_.shape


def _is_empty(*values: Expr) -> bool:
    """Whether nothing is in one of some values."""
    return any(known(size) == 0 for value in values for size in _shape(value))


def _number(of: Scalar) -> Expr:
    """A size as a value."""
    number = known(of)
    return dim_value(of) if number is None else scalar(number, i64)


def _rows(m: PatternMatch) -> tuple[Expr, Expr, Expr] | None:
    """x as a table of rows, the row of each index, and the updates as rows."""
    whole, given = _shape(m.x), _shape(m.i)
    if _is_empty(m.x, m.i, m.u) or (depth := known(given[-1])) is None:
        return None
    outer, inner, count = (product(e) for e in (whole[:depth], whole[depth:], given[:-1]))
    columns = reshape(m.i, (count, depth))
    named = []
    for at in range(depth):
        column = reshape(slice_(columns, (at,), (at + 1,), axes=(1,)), (count,))
        named.append(_places(column, whole[at]))
    rows = _linear(named, whole[:depth])
    row = () if known(inner) == 1 else (inner,)
    return reshape(m.x, (outer, *row)), rows, reshape(m.u, (count, *row))


def _places(indices: Expr, size: Scalar) -> Expr:
    """The places that indices name along an axis: they may count from its end.

    One that is outside is refused.
    """
    given, whole = cast(indices, i64), _number(size)
    below = scalar(-int(whole.numpy()), i64) if isinstance(whole, Const) else negative(whole)
    inside = logical_and(less_equal(below, given), less(given, whole))
    nothing = take(ZEROS, where(inside, ZERO, scalar(2, i64)))
    return add(where(less(given, ZERO), add(given, whole), given), nothing)


def _linear(places: Sequence[Expr], sizes: Sequence[Scalar]) -> Expr:
    """Places along axes as those along one, row by row."""
    expr = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        expr = add(multiply(expr, _number(size)), place)
    return expr


def _elements(m: PatternMatch) -> tuple[Expr, Expr, Expr] | None:
    """The same with all axes as one: a row is one element."""
    if _is_empty(m.x, m.i, m.u):
        return None
    whole = _shape(m.x)
    at = m.a % len(whole)
    along = _places(m.i, whole[at])
    places = [along if other == at else iota_like(along, axis=other) for other in range(len(whole))]
    linear, count = _linear(places, whole), product(_shape(m.i))
    return reshape(m.x, (product(whole),)), reshape(linear, (count,)), reshape(m.u, (count,))


def rows_put(m: PatternMatch) -> Expr | None:
    return _put(_rows(m), m)


def elements_put(m: PatternMatch) -> Expr | None:
    return _put(_elements(m), m)


def _put(of: tuple[Expr, Expr, Expr] | None, m: PatternMatch) -> Expr | None:
    """Rows written into a table, or combined with its rows; a table of one row is replaced by the
    last one written."""
    if of is None:
        return None
    table, rows, updates = of
    if known(_shape(table)[0]) == 1:
        if m.how != "replace" or (count := known(_shape(updates)[0])) is None:
            return None
        named = add(max_(rows, axis=(0,), keepdims=True), scalar(count - 1, i64))
        return reshape(take(updates, named, mode="clip"), _shape(m.x))
    return reshape(scatter_rows(table, rows, updates, reduction=m.how), _shape(m.x))


def is_ordered(how: str) -> bool:
    """Whether the order in which values are joined changes a float."""
    return how in ("add", "mul")


def is_free(how: str) -> bool:
    """Whether one of the values remains, rather than a combination."""
    return not is_ordered(how)


def places_put(m: PatternMatch) -> Expr | None:
    """The place of each element among the non-zero ones; zeros write -1.

    So a non-zero element is written after all others at its place.
    """
    of = type_of(m.x)
    assert isinstance(of, TensorType)
    shape = static_shape(of)
    if not shape or 0 in shape:
        return None
    count, rank = prod(shape), len(shape)
    flags = m.x if of.dtype is bool_ else not_equal(m.x, scalar(0, of.dtype))
    hits, none = cast(reshape(flags, (count,)), i64), scalar(-1, i64)
    running = cumsum(hits, axis=0)
    places = [where(flags, iota_like(m.x, axis=axis), none) for axis in range(rank)]
    updates = reshape(stack(tuple(places), axis=rank), (count, rank))
    last = reshape(slice_(running, (count - 1,), (count,)), ())
    rows = subtract(running, hits)
    return Tuple((scatter_rows(full((count, rank), -1, i64), rows, updates), last))


x, i, u, a = holes("x i u a")
y: Any = hole("x", dtypes=(*NUMBER, bool_))  # Any: as all holes
one: Any = hole("how", when=is_free)
sums: Any = hole("how", when=is_ordered)

# fmt: off
SCATTER: Final[Pack] = pack(
    "scatter",
    rule("scatter-nd-put",          scatter_nd(x, i, u, one),           rows_put),
    rule("scatter-nd-joined",       scatter_nd(x, i, u, sums),          rows_put,
         float=reassociates),
    rule("scatter-elements-put",    scatter_elements(x, i, u, a, one),  elements_put),
    rule("scatter-elements-joined", scatter_elements(x, i, u, a, sums), elements_put,
         float=reassociates),
    rule("argwhere-put",            argwhere(y),                        places_put),
    version="2",
    doc="Scatter updates in one pass over them.",
)
# fmt: on
