"""Sorting: rows are brought into order at once where the threads of a block share them.

    before:  argsort(x), sort(x), topk(x, k)
    after:   first_places of rows, or of runs that are merged then

What `argsort` is written out as counts within short runs, which a GPU merges by a launch each; the
threads of a block sort runs that are as long as what they share.  Runs of longer rows are merged
two by two, the keys and where they were together: both are planes of one tensor, of a dtype that
has all of them.  The definition of `first_places`
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

from attrs import frozen

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.op.comparison import equal
from plica.ir.op.create import iota, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, multiply
from plica.ir.op.index import take_along_axis, where
from plica.ir.op.order import argsort, last_of, merge_planes, sort, sorted_places
from plica.ir.op.pad import pad
from plica.ir.op.record import scalar
from plica.ir.op.shape import reshape, transpose
from plica.ir.op.top_k import first_places, topk
from plica.ir.type.dtype import DType, bool_, f32, f64, i32, i64, u8
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, static_shape, tensor
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes

LONGEST_RUN: Final = 4096  # elements that a block brings into order, where rows are longer
LONGEST_ROW: Final = 8192  # elements of a row that a block brings into order as a whole
MAX_OF_ALL: Final = 6
"""One in more than that of a long row are found among the greatest of its parts."""

PLANES: Final = (f32, i32, f64, i64)  # dtypes that hold both keys and indices, narrowest first
MAX_FOUND_IN_TURN: Final = 2  # up to this many elements of a row are found one after another


@frozen(eq=False)
class _Sorted:
    """The elements of rows in order, and the places where they were."""

    values: Expr
    places: Expr


def _sorted(x: Expr, at: int, descending: bool, k: int | None = None) -> _Sorted | None:
    """Elements along an axis in order, the first k of them where not all are wanted."""
    of = type_of(x)
    shape = static_shape(of) if isinstance(of, TensorType) else None
    if shape is None or not isinstance(of, TensorType) or 0 in shape or shape[at] < 2:
        return None
    order = (*[other for other in range(len(shape)) if other != at], at)
    back = tuple([order.index(other) for other in range(len(shape))])
    turned = at < len(shape) - 1
    keys = cast(x, u8) if of.dtype is bool_ else x
    keys = transpose(keys, order) if turned else keys
    plane = _plane(of.dtype, shape[at])
    if shape[at] <= LONGEST_ROW or plane is None:
        if shape[at] <= LONGEST_ROW:
            expr = first_places(keys, k=k or shape[at], descending=descending)
        else:
            runs = partial(first_places, k=LONGEST_RUN, descending=descending)
            expr = sorted_places(keys, descending, LONGEST_RUN, runs)
            expr = expr if k is None else slice_(expr, (0,), (k,), axes=(-1,))
        expr = transpose(expr, back) if turned else expr
        return _Sorted(take_along_axis(x, expr, axis=at, mode="clip"), expr)
    both = _in_planes(keys, descending, plane)
    expr, values = (
        reshape(slice_(both, (n, 0), (n + 1, k or shape[at]), axes=(-2, -1)),
                (*[shape[other] for other in order[:-1]], k or shape[at]))
        for n in (1, 0)
    )  # fmt: skip
    expr, values = cast(expr, i64), cast(values, of.dtype)
    return _Sorted(*[transpose(each, back) if turned else each for each in (values, expr)])


def _plane(of: DType, size: int) -> DType | None:
    """A dtype that represents all numbers of another, and all indices of a row; None if there is
    none."""
    of = u8 if of is bool_ else of

    def has_all(plane: DType) -> bool:
        if of.is_float:
            return plane.is_float and plane.bytes >= of.bytes
        low, high = of.bounds
        if plane.is_float:
            return max(-low, high) <= 1 << plane.row.digits
        return plane.bounds[0] <= low and high <= plane.bounds[1]

    def has_places(plane: DType) -> bool:
        return size <= (1 << plane.row.digits if plane.is_float else plane.bounds[1])

    return next((dtype for dtype in PLANES if has_all(dtype) and has_places(dtype)), None)


def _in_planes(keys: Expr, descending: bool, plane: DType) -> Expr:
    """Rows in order: their elements, and behind these where they were, as an axis before the last.

    The padding of the last run sorts last.
    """
    of = type_of(keys)
    assert isinstance(of, TensorType)
    *rows, size = static_shape(of) or ()
    count, width = -(-size // LONGEST_RUN), LONGEST_RUN
    whole = count * width
    if whole > size:
        room = (*((0, 0),) * len(rows), (0, whole - size))
        keys = pad(keys, room, constant_values=last_of(of.dtype, descending))
    runs = reshape(keys, (*rows, count, width))
    inside = first_places(runs, k=width, descending=descending)
    ordered = take_along_axis(runs, inside, axis=-1, mode="clip")
    expr = add(inside, multiply(iota_like(runs, axis=-2), scalar(width, i64)))
    keys, expr = (reshape(cast(each, plane), (*rows, 1, whole)) for each in (ordered, expr))
    both = where(equal(iota((2, 1)), scalar(0, i64)), keys, expr)
    while width < whole:
        both = merge_planes(both, width=width, descending=descending)
        width *= 2
    return both


def _of_axis(m: PatternMatch, descending: bool, k: int | None = None) -> _Sorted | None:
    of = type_of(m.x)
    if not isinstance(of, TensorType):
        return None
    return _sorted(m.x, m.axis % len(of.shape), descending, k)


def in_order(m: PatternMatch) -> Expr | None:
    """The places of all elements along an axis."""
    found = _of_axis(m, m.descending)
    return None if found is None else found.places


def ordered(m: PatternMatch) -> Expr | None:
    """The elements at these places."""
    found = _of_axis(m, m.descending)
    return None if found is None else found.values


def first(m: PatternMatch) -> Expr | None:
    """The first of them, and their places, unless few of a long row are wanted."""
    of = type_of(m.x)
    if not isinstance(of, TensorType) or not m.k > MAX_FOUND_IN_TURN:
        return None
    at = m.axis % len(of.shape)
    shape = static_shape(of)
    if shape is None or (shape[at] > LONGEST_ROW and m.k * MAX_OF_ALL < shape[at]):
        return None
    found = _sorted(m.x, at, m.largest, m.k)
    return None if found is None else Tuple((found.values, found.places))


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
