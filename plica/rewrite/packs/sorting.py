"""Sorting: rows are brought into order at once where the threads of a block share them.

    before:  argsort(x), sort(x), topk(x, k)
    after:   first_places of rows, or of runs that are merged then

What `argsort` is written out as counts within short runs, which a GPU merges by a launch each; the
threads of a block sort runs that are as long as what they share.  The definition of `first_places`
compares each with each, so this is for those alone who have a form of it
(`plica.schedule.default.gpu.sorted_row`).

Measure: each rule removes an operator that is written out.

>>> [rule.name for rule in SORTING]
['argsort-in-rows', 'sort-in-rows', 'topk-in-rows']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import cast
from plica.ir.op.index import take_along_axis
from plica.ir.op.order import argsort, sort, sorted_places
from plica.ir.op.shape import transpose
from plica.ir.op.top_k import first_places, topk
from plica.ir.type.dtype import bool_, f32, i32, u8
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape, tensor
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

LONGEST_RUN: Final = 4096
"""Elements that a block brings into order, where rows are longer."""

LONGEST_ROW: Final = 8192
"""Elements of a row that a block brings into order as a whole."""

MOST_OF_ALL: Final = 6
"""One in more than that of a long row are found among the greatest of its parts."""

FEW: Final = 2
"""So many and fewer of a row are found one after another."""


def _places(x: Expr, at: int, descending: bool, k: int | None = None) -> Expr | None:
    """The places along an axis in order, the first k of them where not all are wanted."""
    of = type_of(x)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    if shape is None or not isinstance(of, TensorType) or 0 in shape or shape[at] < 2:
        return None
    order = (*[other for other in range(len(shape)) if other != at], at)
    keys = cast(x, u8) if of.dtype is bool_ else x
    turned = at < len(shape) - 1
    keys = transpose(keys, order) if turned else keys
    if shape[at] <= LONGEST_ROW:
        found = first_places(keys, k=k or shape[at], descending=descending)
    else:
        runs = partial(first_places, k=LONGEST_RUN, descending=descending)
        found = sorted_places(keys, descending, LONGEST_RUN, runs)
        found = found if k is None else slice_(found, (0,), (k,), axes=(-1,))
    back = tuple([order.index(other) for other in range(len(shape))])
    return transpose(found, back) if turned else found


def in_order(m: PatternMatch) -> Expr | None:
    """The places of all elements along an axis."""
    of = type_of(m.x)
    return (
        _places(m.x, m.axis % len(of.shape), m.descending) if isinstance(of, TensorType) else None
    )


def ordered(m: PatternMatch) -> Expr | None:
    """The elements at these places."""
    found = in_order(m)
    return None if found is None else take_along_axis(m.x, found, axis=m.axis, mode="clip")


def first(m: PatternMatch) -> Expr | None:
    """The first of them, and their places, unless few of a long row are wanted."""
    of = type_of(m.x)
    if not isinstance(of, TensorType) or not m.k > FEW:
        return None
    at = m.axis % len(of.shape)
    shape = static_shape(of)
    if shape is None or (shape[at] > LONGEST_ROW and m.k * MOST_OF_ALL < shape[at]):
        return None
    found = _places(m.x, at, m.largest, m.k)
    if found is None:
        return None
    return Tuple((take_along_axis(m.x, found, axis=at, mode="clip"), found))


def some_rows(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:  # Any: whatever it draws
    """Rows, which nothing but this would draw."""
    shape = [choose((1, 2, 3)), choose((4, 7, 8))]
    axis = choose((0, 1))
    shape = shape if axis else shape[::-1]
    of = tensor(tuple(shape), choose((f32, i32)))
    return {"x": of, "axis": axis, "descending": choose((True, False))}


def some_of_rows(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:  # Any: likewise
    """The same, and how many are wanted of them."""
    rows = some_rows(choose)
    return {"x": rows["x"], "axis": rows["axis"], "largest": rows["descending"],
            "k": choose((3, 4))}  # fmt: skip


x: Any = hole("x")  # Any: as all holes
k, axis, largest, descending = holes("k axis largest descending")

SORTING: Final[Pack] = pack(
    "sorting",
    rule("argsort-in-rows", argsort(x, axis, descending), in_order, instances=some_rows),
    rule("sort-in-rows", sort(x, axis, descending), ordered, instances=some_rows),
    rule("topk-in-rows", topk(x, k, axis, largest), first, instances=some_of_rows),
    version="1",
    doc="Rows are brought into order by the threads that share them.",
)
