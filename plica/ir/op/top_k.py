"""The greatest elements along an axis, without bringing the others into order.

    128 of 100,000    -->    2,500 blocks of 40, of which 128 are chosen; 128 of 5,120 elements

The order is that of `plica.ir.op.order`: equal elements keep theirs, nan is the greatest.

>>> from plica.ir.type.term import tensor
>>> found = topk.relation({"k": 2, "axis": -1, "largest": True}, tensor((3, 5), "f32"))
>>> [[size.value for size in each.shape] for each in found.items]
[[3, 2], [3, 2]]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from plica.ir.graph.expression import Expr, Tuple
from plica.ir.graph.operator import Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar import index
from plica.ir.loop.tensor import Compute, axis, compute
from plica.ir.op.attribute import AXIS, attribute, flag, natural
from plica.ir.op.comparison import equal, less, less_equal, logical_and, logical_or
from plica.ir.op.create import iota, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, cast, isnan, multiply, subtract
from plica.ir.op.index import take, take_along_axis, where
from plica.ir.op.join import concat
from plica.ir.op.order import is_before, last_of, sorted_places
from plica.ir.op.pad import pad
from plica.ir.op.rank import PLACE_LIMIT, by_counting, without_nan
from plica.ir.op.record import composite, plus, primitive, scalar, tensor_of, tuple_of
from plica.ir.op.reduction import max_, min_, sum_
from plica.ir.op.relation import BOOL, NUMBER, axis_of, need, refuse
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape, transpose
from plica.ir.type import TensorType, TupleType, bool_, i32, i64, known, normal_dim, u8

_LANES: Final = 16  # comparisons that most processors do at once, or two at a time
_PASS_COST: Final = 64  # the fixed cost of one selection pass over all keys, in key comparisons
_MIN_KEYS_FOR_BLOCKS: Final = 4096
"""Up to this many keys, passes after the first are cheaper than choosing blocks."""

_COUNTED: Final = 64  # this many keys, or fewer, are brought into order by comparing each with each
_MOST_COUNTED: Final = 128  # this many are, where many of them are wanted


_EACH: Final = 6  # one in more than that are worth choosing blocks


_OPEN_TURNS: Final = 64
"""This many are found one after another where it is open of how many: to sort compares all
pairs."""


def _topk_rule(attrs: Values, x: TensorType) -> TupleType:
    at = axis_of("topk", attrs["axis"], len(x.shape))
    size = known(x.shape[at])
    need(plus(x.shape[at], -attrs["k"]))
    need(normal_dim(index(PLACE_LIMIT - 1) - x.shape[at]))
    if size is not None and attrs["k"] > size:
        message = "topk takes no more elements than there are along the axis."
        refuse("shape-conflict", message, f"an axis of {attrs['k']} or more", str(x))
    shape = (*x.shape[:at], index(attrs["k"]), *x.shape[at + 1 :])
    return tuple_of((TensorType(shape, x.dtype), TensorType(shape, i64)))


def _topk(attrs: Values, x: Expr) -> Expr:
    rank = len(tensor_of(x).shape)
    at = axis_of("topk", attrs["axis"], rank)
    order = (*(other for other in range(rank) if other != at), at)
    keys = cast(x, u8) if tensor_of(x).dtype is bool_ else x
    if at == rank - 1:
        places = _greatest(keys, attrs["k"], attrs["largest"])
    else:
        back = tuple(order.index(other) for other in range(rank))
        expr = _greatest(transpose(keys, order), attrs["k"], attrs["largest"])
        places = transpose(expr, back)
    return Tuple((take_along_axis(x, places, axis=at, mode="clip"), places))


def _greatest(keys: Expr, k: int, largest: bool) -> Expr:
    """The places of the k greatest (or least) along the last axis, in order.

    They are in the k blocks with the greatest maxima; of blocks with equal maxima the first come
    first. So blocks are selected first, then elements in the selected blocks.
    """
    of = tensor_of(keys)
    if (size := known(of.shape[-1])) is None:
        if 0 < k <= _OPEN_TURNS:
            return _by_turns(keys, k, largest)
        return take(sorted_places(keys, largest), iota((k,)), axis=-1, mode="clip")
    if 0 < k <= size < PLACE_LIMIT and _turns_pay(size, k):
        return _by_turns(keys, k, largest)
    if 0 < size <= max(_COUNTED, min(_MOST_COUNTED, _EACH * k)):
        return by_counting(keys, iota_like(keys, axis=-1), k, largest)
    if not 0 < _EACH * k < size < PLACE_LIMIT:
        return slice_(sorted_places(keys, largest), (0,), (k,), axes=(-1,))
    last = last_of(of.dtype, largest)
    width = max(4, min(64, math.isqrt(size // k)))
    count = -(-size // width)
    room = ((0, 0),) * (len(of.shape) - 1)
    rows = (*of.shape[:-1], index(count), index(width))
    blocks = reshape(pad(keys, (*room, (0, count * width - size)), constant_values=last), rows)
    best = _greatest(max_(blocks, axis=(-1,)) if largest else _least(blocks), k, largest)
    if k <= _MOST_COUNTED:
        first = by_counting(best, best, k, largest=False)  # in their own order
    else:
        first = take_along_axis(best, sorted_places(best, False), axis=-1, mode="clip")
    chosen = expand_dims(first, (-1,))
    few, own = (*of.shape[:-1], index(k * width)), (*of.shape[:-1], index(k), index(width))
    taken = take_along_axis(blocks, broadcast_to(chosen, own), axis=-2, mode="clip")
    offsets = add(multiply(chosen, scalar(width, i64)), iota((width,)))
    among = _greatest(reshape(taken, few), k, largest)
    return take_along_axis(reshape(offsets, few), among, axis=-1, mode="clip")


def _least(blocks: Expr) -> Expr:
    """The minimum of each block; NaN only if there is nothing else."""
    of = tensor_of(blocks).dtype
    if not of.is_float:
        return min_(blocks, axis=(-1,))
    numbers = where(isnan(blocks), scalar(math.inf, of), blocks)
    count = sum_(where(isnan(blocks), scalar(0, i32), scalar(1, i32)), axis=(-1,))
    best = min_(numbers, axis=(-1,))
    return where(equal(count, scalar(0, i32)), scalar(math.nan, of), best)


def _turns_pay(size: int, k: int) -> bool:
    """Whether to find k one after another is less work than to count for all, or to choose blocks.

    A turn compares each with two others, counting with all: in two instructions where a turn has
    five.
    """
    counting = 2 * size * -(-size // _LANES) * _LANES
    return (k - 1) * size <= _MIN_KEYS_FOR_BLOCKS and 5 * k * (size + _PASS_COST) < counting


def _by_turns(keys: Expr, k: int, largest: bool) -> Expr:
    """The places of the k greatest (or least), each the first of those behind the one before it."""
    extreme, of = (max_ if largest else min_), tensor_of(keys).dtype
    last = scalar(math.inf if of.is_float and not largest else last_of(of, largest), of)
    nowhere = scalar(i32.bounds[1], i32)
    keys, ties = without_nan(keys, cast(iota_like(keys, axis=-1), i32), largest)
    exprs: list[Expr] = []
    behind: Expr | None = None
    for _ in range(k):
        left = keys if behind is None else where(behind, keys, last)
        best = extreme(left, axis=(-1,), keepdims=True)
        hit = equal(keys, best)
        if behind is not None:
            hit = logical_and(hit, behind)
        tie = min_(where(hit, ties, nowhere), axis=(-1,), keepdims=True)
        exprs.append(tie)
        beyond = less(keys, best) if largest else less(best, keys)
        behind = logical_or(beyond, logical_and(equal(keys, best), less(tie, ties)))
    whole = exprs[0] if k == 1 else concat(tuple(exprs), axis=-1)
    if of.is_float:
        apart = scalar(PLACE_LIMIT, i32)
        is_nan = less(whole, scalar(0, i32)) if largest else less_equal(apart, whole)
        whole = where(is_nan, (add if largest else subtract)(whole, apart), whole)
    return cast(whole, i64)


# --- one by one -----------------------------------------------------------------------------------


def place_of_rank(
    key: Callable[[sc.Scalar], sc.Scalar],
    size: sc.Scalar,
    rank: sc.Scalar,
    terms: tuple[sc.ScalarVar, sc.ScalarVar],
    descending: bool,
) -> sc.Scalar:
    """The index of the element of a given rank, by two index variables."""
    mine, other = terms
    before = comes_before((key(other), other), (key(mine), mine), descending)
    count = sc.Reduce("sum", (other,), (size,), sc.Select(before, index(1), index(0)))
    return sc.Reduce("sum", (mine,), (size,), sc.Select(sc.Eq(count, rank), mine, index(0)))


Keyed: TypeAlias = tuple[sc.Scalar, sc.Scalar]  # a key and its place


def comes_before(a: Keyed, b: Keyed, descending: bool) -> sc.Scalar:
    """Whether one comes before another; ties are broken by the lower index."""
    (left, here), (right, there) = a, b
    tied = sc.And(sc.Not(is_before(right, left, descending)), sc.Lt(here, there))
    return sc.Or(is_before(left, right, descending), tied)


def _first_rule(attrs: Values, x: TensorType) -> TensorType:
    at = axis_of("first_places", attrs["axis"], len(x.shape))
    size = known(x.shape[at])
    if size is None or not 0 < attrs["k"] <= size:
        message = "first_places takes some of the elements along the axis, and no more."
        refuse("shape-conflict", message, f"an axis of {attrs['k']} or more", str(x))
    return TensorType((*x.shape[:at], index(attrs["k"]), *x.shape[at + 1 :]), i64)


def _first_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    along = attrs["axis"] % len(x.shape)
    terms, size = (axis("mine"), axis("other")), x.shape[along]

    def element(*i: sc.Scalar) -> sc.Scalar:
        def key(at: sc.Scalar) -> sc.Scalar:
            return x[(*i[:along], at, *i[along + 1 :])]

        return place_of_rank(key, size, i[along], terms, attrs["descending"])

    return compute((x,), out.shape, element)


first_places = primitive(
    "first_places", ("x",), _first_rule, _first_body,
    "The indices of the first k elements of a sorted axis.",
    attributes=(attribute("k", natural), attribute("descending", flag, False), AXIS),
    admits=NUMBER,
)  # fmt: skip


topk = composite(
    "topk", ("x",), _topk_rule, _topk,
    "The k largest (or smallest) elements along an axis in order, and their indices.",
    attributes=(attribute("k", natural), AXIS, attribute("largest", flag, True)),
    admits=NUMBER | BOOL,
)  # fmt: skip
