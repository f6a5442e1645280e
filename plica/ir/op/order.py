"""Order: sorting, searching, ranking, and which elements differ.

The order is numpy's: NaN comes after every number, and the sort is stable (both zeros are equal).
`descending` is the reverse order, and is stable too.

Results with a data-dependent size (`unique`, `argwhere`) have their maximum size, together with the
number of valid elements.

>>> from plica.ir.type.term import tensor
>>> found = sort.relation({"axis": -1, "descending": False}, tensor((3, 5), "f32"))
>>> [size.value for size in found.shape]
[3, 5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.graph.operator import Through, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import AXIS, attribute, choice, flag, positive
from plica.ir.op.comparison import equal, less, logical_and, logical_not, logical_or, not_equal
from plica.ir.op.create import iota, iota_like, zeros
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, floor_divide, isnan, mod, multiply, subtract
from plica.ir.op.index import length, take, take_along_axis, where
from plica.ir.op.join import stack
from plica.ir.op.pad import pad
from plica.ir.op.rank import by_counting, open_row
from plica.ir.op.record import composite, primitive, scalar, tensor_of, tuple_of
from plica.ir.op.reduction import cumsum, sum_
from plica.ir.op.relation import BOOL, NUMBER, Shape, axis_of, refuse, same
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, ravel, reshape, transpose
from plica.ir.type import DType, TensorType, TupleType, bool_, i64, known, normal_dim, product, u8

LARGEST_EXPONENT: Final = 48  # the bits of an open size: no memory holds 2^48 elements
COUNTED_RUN: Final = 32  # elements that count those before them, before runs are merged

ZERO, ONE = scalar(0, i64), scalar(1, i64)
_DESCENDING: Final = attribute("descending", flag, False)
_ORDERED: Final = NUMBER | BOOL


def is_before(a: sc.Scalar, b: sc.Scalar, descending: bool) -> sc.Scalar:
    """Whether a comes before b in any representation; NaN is the greatest."""
    if descending:
        return is_before(b, a, False)
    if sc.dtype_of(a).is_float:
        return sc.And(sc.Not(sc.Le(b, a)), sc.Eq(a, a))
    return sc.Lt(a, b)


def _prefix(
    bits: int, start: sc.Scalar, stop: sc.Scalar, holds: Callable[[sc.Scalar], sc.Scalar]
) -> sc.Scalar:
    """The end of the prefix, from `start` to at most `stop`, in which a predicate holds; binary
    search with a given number of bits.

    `holds` may be evaluated past `stop`, with an arbitrary result.
    """
    end = start
    for bit in reversed(range(bits)):
        further = end + (1 << bit)
        end = sc.Select(sc.And(sc.Le(further, stop), holds(further - 1)), further, end)
    return end


def _clipped(x: sc.Buffer, rest: tuple[sc.Scalar, ...], at: sc.Scalar) -> sc.Scalar:
    """The element at an index clamped to the axis."""
    return x[(*rest, sc.Max(sc.index(0), sc.Min(at, x.shape[-1] - 1)))]


# --- two primitives ------------------------------------------------------------------------------


def merged_place(x: sc.Buffer, i: Sequence[sc.Scalar], width: int, descending: bool) -> sc.Scalar:
    """The place in x of the element at i, once runs of a width are merged two by two."""
    rest, k, size = tuple(i[:-1]), i[-1], x.shape[-1]
    start = sc.FloorDiv(k, sc.index(2 * width)) * (2 * width)
    rank = k - start
    left = sc.Min(sc.index(width), size - start)
    right = sc.Max(sc.index(0), sc.Min(sc.index(width), size - start - width))

    def from_left(at: sc.Scalar) -> sc.Scalar:
        mine = _clipped(x, rest, start + at)
        other = _clipped(x, rest, start + (width - 1) + rank - at)
        return sc.Not(is_before(other, mine, descending))

    # How many of the first `rank` elements of the merged run come from the left one.
    least, most = sc.Max(sc.index(0), rank - right), sc.Min(rank, left)
    low = _prefix(width.bit_length(), least, most, from_left)
    mine, other = _clipped(x, rest, start + low), _clipped(x, rest, start + width + rank - low)
    first = sc.Or(sc.Le(right, rank - low), sc.Not(is_before(other, mine, descending)))
    return sc.Select(sc.And(sc.Lt(low, left), first), start + low, start + width + rank - low)


def _merge_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    width, descending = attrs["width"], attrs["descending"]
    return compute((x,), out.shape, lambda *i: merged_place(x, i, width, descending))


merge_runs = primitive(
    "merge_runs", ("x",), lambda attrs, x: TensorType(_last(x, "merge_runs"), i64), _merge_body,
    "The indices that merge adjacent sorted runs along the last axis in pairs.",
    attributes=(attribute("width", positive), _DESCENDING), admits=NUMBER,
)  # fmt: skip


def _planes_rule(attrs: Values, x: TensorType) -> TensorType:
    axis_of("merge_planes", -2, len(x.shape))
    return x


def _planes_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    width, descending = attrs["width"], attrs["descending"]

    def element(*i: sc.Scalar) -> sc.Scalar:
        place = merged_place(x, (*i[:-2], sc.index(0), i[-1]), width, descending)
        return _clipped(x, tuple(i[:-1]), place)

    return compute((x,), out.shape, element)


def _planes_taken(attrs: Values, x: Expr) -> Expr:
    """The same as a gather, whether or not the runs are sorted."""
    of = tensor_of(x).shape
    if known(of[-2]) == 0:
        return x
    keys = reshape(slice_(x, (0,), (1,), axes=(-2,)), (*of[:-2], of[-1]))
    places = expand_dims(merge_runs(keys, **attrs), (-2,))
    return take_along_axis(x, broadcast_to(places, of), axis=-1, mode="clip")


merge_planes = primitive(
    "merge_planes", ("x",), _planes_rule, _planes_body,
    "Merge adjacent sorted runs along the last axis in pairs, by the first plane of the axis "
    "before; the other planes follow.",
    attributes=(attribute("width", positive), _DESCENDING), admits=NUMBER,
    gradient=Through(_planes_taken),
)  # fmt: skip


def _last(x: TensorType, name: str) -> Shape:
    axis_of(name, -1, len(x.shape))
    return x.shape


def _search_rule(attrs: Values, sorted_: TensorType, x: TensorType) -> TensorType:
    axis_of("searchsorted", -1, len(sorted_.shape))
    rows = sorted_.shape[:-1]
    if rows and len(x.shape) != len(sorted_.shape):
        message = "searchsorted takes a row of values for each row it searches."
        refuse("shape-conflict", message, f"rank {len(sorted_.shape)}", str(x))
    for mine, other in zip(rows, x.shape, strict=False):
        same("searchsorted", "the rows", mine, other)
    return TensorType(x.shape, i64)


def _search_body(attrs: Values, out: TensorType, sorted_: sc.Buffer, x: sc.Buffer) -> Compute:
    size = sorted_.shape[-1]
    number = known(size)
    bits = LARGEST_EXPONENT if number is None else number.bit_length()

    def element(*i: sc.Scalar) -> sc.Scalar:
        def before(at: sc.Scalar) -> sc.Scalar:
            there = _clipped(sorted_, i[: len(sorted_.shape) - 1], at)
            if attrs["side"] == "left":
                return is_before(there, x[i], False)
            return sc.Not(is_before(x[i], there, False))

        return _prefix(bits, sc.index(0), size, before)

    return compute((sorted_, x), out.shape, element)


searchsorted = primitive(
    "searchsorted", ("sorted", "x"), _search_rule, _search_body,
    "Insertion indices of x into an ascending last axis: left or right of equal elements.",
    attributes=(attribute("side", choice("left", "right"), "left"),), admits=NUMBER,
)  # fmt: skip

# --- sorting -------------------------------------------------------------------------------------


def _sort_rule(attrs: Values, x: TensorType) -> TensorType:
    axis_of("sort", attrs["axis"], len(x.shape))
    return x


def _argsort(attrs: Values, x: Expr) -> Expr:
    rank = len(tensor_of(x).shape)
    at = axis_of("argsort", attrs["axis"], rank)
    order = (*(other for other in range(rank) if other != at), at)
    keys = cast(x, u8) if tensor_of(x).dtype is bool_ else x
    if order == tuple(range(rank)):
        return sorted_places(keys, attrs["descending"])
    back = tuple(order.index(other) for other in range(rank))
    return transpose(sorted_places(transpose(keys, order), attrs["descending"]), back)


def last_of(of: DType, descending: bool) -> float:
    """A value that sorts last, or equal to the last; stability puts it behind equal ones."""
    if of.is_float:
        return -math.inf if descending else math.nan
    return of.bounds[0 if descending else 1]


def sorted_places(
    keys: Expr,
    descending: bool,
    run: int = COUNTED_RUN,
    places: Callable[[Expr], Expr] | None = None,
) -> Expr:
    """The places of the elements along the last axis in their order.

    Short runs are ranked by counting (or by `places`) and merged pairwise; the padding of the last
    run sorts last.
    """
    of = tensor_of(keys)
    if (size := known(of.shape[-1])) is None:
        return open_row(keys, descending)
    if size < 2:
        return iota_like(keys, axis=-1)
    width = min(run, size)
    whole = -(-size // width) * width
    rows = of.shape[:-1]
    if whole > size:
        room = ((0, 0),) * len(rows)
        keys = pad(keys, (*room, (0, whole - size)), constant_values=last_of(of.dtype, descending))
    runs = reshape(keys, (*rows, whole // width, width))
    inside = (
        by_counting(runs, iota_like(runs, axis=-1), width, descending) if places is None
        else places(runs)
    )  # fmt: skip
    expr = reshape(
        add(inside, multiply(iota_like(runs, axis=-2), scalar(width, i64))), (*rows, whole)
    )
    while width < whole:
        ordered = take_along_axis(keys, expr, mode="clip")
        step = merge_runs(ordered, width=width, descending=descending)
        expr = take_along_axis(expr, step, mode="clip")
        width *= 2
    return expr if whole == size else slice_(expr, (0,), (size,), axes=(-1,))


argsort = composite(
    "argsort", ("x",), lambda attrs, x: TensorType(_sort_rule(attrs, x).shape, i64), _argsort,
    "The indices that sort an axis, stably; nan is greatest.",
    attributes=(AXIS, _DESCENDING), admits=_ORDERED,
)  # fmt: skip


def _sort_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    places = argsort(x, axis=attrs["axis"], descending=attrs["descending"])
    return [take_along_axis(d, argsort(places, axis=attrs["axis"]), axis=attrs["axis"])]


def _taken(x: Expr, places: Expr, at: int) -> Expr:
    return take_along_axis(x, places, axis=at, mode="clip")


sort = composite(
    "sort", ("x",), _sort_rule, lambda attrs, x: _taken(x, argsort(x, **attrs), attrs["axis"]),
    "Sort along an axis; nan is greatest.", attributes=(AXIS, _DESCENDING),
    admits=_ORDERED, gradient=_sort_pullback,
)  # fmt: skip


# --- as many as there are ------------------------------------------------------------------------

_BLOCK: Final = 64


_OPEN_LEVELS: Final = 3
"""So often blocks are made of blocks where the size is open: enough for 2^18 sums in each."""


def _running_count(x: Expr, level: int = 0) -> Expr:
    """The sum of whole numbers up to each place of a vector: in blocks, then of their totals."""
    size = tensor_of(x).shape[0]
    number = known(size)
    if (number is not None and number <= _BLOCK) or (number is None and level == _OPEN_LEVELS):
        return cumsum(x, axis=0)
    rows = normal_dim((size + (_BLOCK - 1)) // _BLOCK)
    if number is None:
        at = iota((rows * _BLOCK,), dtype=i64)
        whole = where(less(at, length(x, 0)), take(x, at, mode="clip"), ZERO)
    else:
        whole = pad(x, ((0, (known(rows) or 0) * _BLOCK - number),))
    inner = cumsum(reshape(whole, (rows, _BLOCK)), axis=1)
    totals = reshape(slice_(inner, (_BLOCK - 1,), (_BLOCK,), axes=(1,)), (rows,))
    before = subtract(_running_count(totals, level + 1), totals)
    expr = ravel(add(inner, reshape(before, (rows, 1))))
    if number is not None:
        return slice_(expr, (0,), (size,))
    return take(expr, iota_like(x, axis=0), mode="clip")


def _unique_rule(attrs: Values, x: TensorType) -> TupleType:
    whole = (product(x.shape),)
    places = TensorType(whole, i64)
    return tuple_of((TensorType(whole, x.dtype), places, places, places, TensorType((), i64)))


def _unique(attrs: Values, x: Expr) -> Expr:
    flat = ravel(x)
    keys = cast(flat, u8) if tensor_of(x).dtype is bool_ else flat
    order = argsort(keys)
    ordered = take(keys, order, mode="clip")
    number = iota_like(keys)
    previous = take(ordered, subtract(number, ONE), mode="clip")
    differs = not_equal(ordered, previous)
    if tensor_of(keys).dtype.is_float:
        differs = logical_and(differs, logical_not(isnan(previous)))
    new = logical_or(equal(number, ZERO), differs)
    count = sum_(cast(new, i64))
    group = subtract(_running_count(cast(new, i64)), ONE)
    start = searchsorted(group, number)
    counts = subtract(searchsorted(group, number, side="right"), start)
    first = take(order, start, mode="clip")
    inverse = take(group, argsort(order), mode="clip")
    if not attrs["sorted"]:
        seen = argsort(where(less(number, count), first, length(keys, 0)))
        inverse = take(argsort(seen), inverse, mode="clip")
        first, counts = (take(expr, seen, mode="clip") for expr in (first, counts))
    values = take(flat, first, mode="clip")
    return Tuple((values, first, inverse, counts, count))


unique = composite(
    "unique", ("x",), _unique_rule, _unique,
    "The distinct elements of x, their first indices, the inverse indices, their counts, and "
    "their number; further entries have count 0.",
    attributes=(attribute("sorted", flag, True),), admits=_ORDERED,
)  # fmt: skip


def unravelled(flat: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """The places along each axis of a place counted through all of them."""
    exprs: list[Expr] = []
    for size in reversed(sizes[1:]):
        exprs.append(mod(flat, size))
        flat = floor_divide(flat, size)
    return [flat, *reversed(exprs)]


def _argwhere_rule(attrs: Values, x: TensorType) -> TupleType:
    shape = (product(x.shape), sc.index(len(x.shape)))
    return tuple_of((TensorType(shape, i64), TensorType((), i64)))


def _argwhere(attrs: Values, x: Expr) -> Expr:
    of = tensor_of(x)
    flags = x if of.dtype is bool_ else not_equal(x, scalar(0, of.dtype))
    hits = cast(ravel(flags), i64)
    count = sum_(hits)
    if not of.shape:
        return Tuple((zeros((1, 0), i64), count))
    number = iota_like(hits)
    flat = searchsorted(_running_count(hits), add(number, ONE))
    places = unravelled(flat, [length(x, at) for at in range(len(of.shape))])
    inside = less(number, count)
    columns = [where(inside, place, scalar(-1, i64)) for place in places]
    return Tuple((stack(tuple(columns), axis=1), count))


argwhere = composite(
    "argwhere", ("x",), _argwhere_rule, _argwhere,
    "The indices of nonzero elements, one row each, and their number; further rows are -1.",
    admits=_ORDERED,
)  # fmt: skip
