"""Rows of indexing by values: gathering, scattering, ranking.

Scattering and ranking are sums and maxima over comparisons: each place of the result looks for what
is meant for it.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, axis_in, dtype, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.comparison import equal, greater_equal, less, logical_and, logical_not, logical_or
from plica.ir.op.create import iota, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, isnan, maximum, minimum, multiply, subtract
from plica.ir.op.index import gather_nd, take, take_along_axis, where
from plica.ir.op.pad import pad
from plica.ir.op.reduction import max_, min_, prod, sum_
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape, transpose
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64

MOST_PAIRS: Final = 1 << 28
"""Scattering and ranking compare each place with each candidate; more pairs are refused."""


def _gather(node: OnnxNode) -> Expr:
    return take(node.x(0), node.x(1), axis=node.integer("axis", 0))


def _gather_elements(node: OnnxNode) -> Expr:
    return take_along_axis(node.x(0), node.x(1), axis=node.integer("axis", 0))


def _gather_nd(node: OnnxNode) -> Expr:
    return gather_nd(node.x(0), node.x(1), batch_dims=node.integer("batch_dims", 0))


def _one_hot(node: OnnxNode) -> Expr:
    depth = int(node.scalar(1))
    indices, values = node.x(0), node.x(2)
    if not dtype(indices).is_integer:
        indices = to(indices, i64)
    indices = to(indices, i64)
    axis = axis_in(node, node.integer("axis", -1), rank(indices) + 1)
    if depth < 0:
        node.malformed("OneHot has a depth of 0 or more.", "0 or more", str(depth))
    wide = expand_dims(where(less(indices, like(0, indices)), add(indices, like(depth, indices)),
                             indices), axis=(axis,))  # fmt: skip
    steps = tuple(depth if at == axis else 1 for at in range(rank(wide)))
    places = reshape(iota(shape=(depth,), dtype=i64), steps)
    off, on = (reshape(slice_(values, (at,), (at + 1,)), ()) for at in (0, 1))
    return where(equal(wide, places), on, off)


def _compress(node: OnnxNode) -> Expr:
    x = node.x(0)
    chosen = np.flatnonzero(node.numbers(1)).astype(np.int64)
    if node.has("axis"):
        return take(x, const(chosen), axis=node.integer("axis"))
    return take(reshape(x, (math.prod(node.sizes(0)),)), const(chosen), axis=0)


def _non_zero(node: OnnxNode) -> Expr:
    found = np.array(np.nonzero(node.numbers(0)), np.int64)
    return const(found.reshape(max(1, node.rank()) if node.rank() else 0, -1))


def _unique(node: OnnxNode) -> Made:
    x = node.numbers(0)
    axis = axis_in(node, node.integer("axis"), x.ndim) if node.has("axis") else None
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not node.flag("sorted", True):
        order = np.argsort(first)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], back[inverse]
    extra = [const(each.reshape(-1).astype(np.int64)) for each in (first, inverse, counts)]
    return [const(values, dtype(node.x(0))), *extra]


# --- scattering ----------------------------------------------------------------------------------

_COMBINE: Final = {
    "add": (sum_, add, 0.0),
    "mul": (prod, multiply, 1.0),
    "max": (max_, maximum, -math.inf),
    "min": (min_, minimum, math.inf),
}


def _reduction(node: OnnxNode) -> str:
    kind = node.text("reduction", "none") if node.opset >= 16 else "none"
    if kind != "none" and kind not in _COMBINE:
        node.malformed("There is no such reduction.", ", ".join(_COMBINE), repr(kind))
    return kind


def _check_pairs(node: OnnxNode, *sizes: Scalar | int) -> None:
    count = math.prod(each if isinstance(each, int) else (known(each) or 1) for each in sizes)
    if count > MOST_PAIRS:
        message = f"{node.proto.op_type} is too large to compare every place with every candidate."
        node.unsupported(message, f"at most {MOST_PAIRS} pairs", str(count))


def _scattered(kind: str, data: Expr, hit: Expr, updates: Expr) -> Expr:
    """`data` with updates: `hit` and `updates` have one axis more, the candidates, in front."""
    if kind == "none":
        pick = _last(hit)
        chosen = expand_dims(maximum(pick, like(0, pick)), axis=(0,))
        found = reshape(take_along_axis(updates, chosen, axis=0), shape(pick))
        return where(greater_equal(pick, like(0, pick)), found, data)
    fold, join, neutral = _COMBINE[kind]
    nothing = neutral
    if math.isinf(neutral) and not dtype(data).is_float:
        nothing = dtype(data).bounds[0 if neutral < 0 else 1]
    candidates = where(hit, updates, like(nothing, data))
    return join(data, fold(candidates, axis=(0,)))


def _scatter_elements(node: OnnxNode) -> Expr:
    data, indices, updates = node.x(0), to(node.x(1), i64), node.x(2)
    axis = axis_in(node, node.integer("axis", 0), rank(data))
    kind = _reduction(node)
    sizes, given = node.sizes(0), node.sizes(1)
    fits = given == node.sizes(2) and len(given) == len(sizes)
    if not fits or any(given[at] > sizes[at] for at in range(len(sizes)) if at != axis):
        expected, found = str(node.type(1)), str(node.type(2))
        node.malformed("Indices and updates do not fit the data.", expected, found)
    if 0 in given:
        return data
    _check_pairs(node, *sizes, given[axis])
    # Taking from the places themselves refuses what is outside, and counts from the end.
    indices = take(iota(shape=(sizes[axis],), dtype=i64), indices, axis=0)
    # Where the indices are shorter than the data along other axes, nothing is meant for the rest.
    widths = tuple((0, 0) if at == axis else (0, sizes[at] - given[at]) for at in range(len(sizes)))
    indices = pad(indices, widths, constant_values=-1)
    updates = pad(updates, widths, constant_values=_zero(updates))
    # Candidates in front: (k, ..., 1, ...) against the places along the axis.
    order = (axis, *(at for at in range(len(sizes)) if at != axis))
    front = expand_dims(transpose(indices, order), axis=(axis + 1,))
    updates = expand_dims(transpose(updates, order), axis=(axis + 1,))
    form = tuple(sizes[axis] if at == axis + 1 else 1 for at in range(len(sizes) + 1))
    places = reshape(iota(shape=(sizes[axis],), dtype=i64), form)
    whole = (given[axis], *sizes)
    hit = broadcast_to(equal(front, places), whole)
    updates = broadcast_to(updates, whole)
    return _scattered(kind, data, hit, updates)


def _zero(x: Expr) -> bool | int | float:
    return False if dtype(x).name == "bool" else (0.0 if dtype(x).is_float else 0)


def _last(hit: Expr) -> Expr:
    """The number of the last candidate that is meant for each place, -1 where none is."""
    numbers = iota_like(hit, axis=0, dtype=i64)
    return max_(where(hit, numbers, like(-1, numbers)), axis=(0,))


def _scatter_nd(node: OnnxNode) -> Expr:
    data, indices, updates = node.x(0), to(node.x(1), i64), node.x(2)
    kind = _reduction(node)
    sizes, given = node.sizes(0), node.sizes(1)
    depth = given[-1] if given else 0
    if not given or depth > len(sizes) or node.sizes(2) != (*given[:-1], *sizes[depth:]):
        expected, found = str(node.type(1)), str(node.type(2))
        node.malformed("Indices and updates do not fit the data.", expected, found)
    count, outer = math.prod(given[:-1]), math.prod(sizes[:depth])
    inner = math.prod(sizes[depth:])
    if count == 0 or outer == 0 or inner == 0:
        return data
    _check_pairs(node, count, outer, inner)
    # Gathering the numbers of the places refuses what is outside, and counts from the end.
    table = reshape(iota(shape=(outer,), dtype=i64), sizes[:depth])
    chosen = reshape(indices, (count, depth))
    linear = gather_nd(table, chosen) if depth else broadcast_to(like(0, table), (count,))
    places = reshape(iota(shape=(outer,), dtype=i64), (1, outer, 1))
    whole = (count, outer, inner)
    hit = broadcast_to(equal(reshape(linear, (count, 1, 1)), places), whole)
    candidates = broadcast_to(reshape(updates, (count, 1, inner)), whole)
    rows = reshape(data, (outer, inner))
    return reshape(_scattered(kind, rows, hit, candidates), sizes)


# --- ranking -------------------------------------------------------------------------------------


def _top_k(node: OnnxNode) -> Made:
    x = node.x(0)
    k = int(node.scalar(1)) if node.opset >= 10 else node.integer("k")
    axis = axis_in(node, node.integer("axis", -1), rank(x))
    largest, _ = node.flag("largest", True), node.flag("sorted", True)
    sizes = node.sizes(0)
    length = sizes[axis]
    if not 0 <= k <= length:
        node.malformed("TopK takes no more than there is.", f"0 to {length}", str(k))
    _check_pairs(node, *sizes, length)
    # The rank of an element is how many come before it: those beyond it, and its equals in front.
    moved = transpose(x, (*(at for at in range(len(sizes)) if at != axis), axis))
    mine, other = expand_dims(moved, axis=(-1,)), expand_dims(moved, axis=(-2,))
    beyond = less(mine, other) if largest else less(other, mine)
    same = equal(mine, other)
    if dtype(x).is_float:
        nan, nan_too = isnan(mine), isnan(other)
        # A nan counts as the greatest number.
        above = (nan_too, nan) if largest else (nan, nan_too)
        beyond = logical_or(beyond, logical_and(above[0], logical_not(above[1])))
        same = logical_or(same, logical_and(nan, nan_too))
    rows, columns = (iota(shape=(length, length), axis=at, dtype=i64) for at in (0, 1))
    before = logical_or(beyond, logical_and(same, less(columns, rows)))
    ranks = sum_(to(before, i64), axis=(-1,))
    wanted = iota(shape=(1, k), axis=1, dtype=i64)
    hit = equal(expand_dims(ranks, axis=(-1,)), wanted)
    places = iota_like(hit, axis=-2, dtype=i64)
    chosen = sum_(where(hit, places, like(0, places)), axis=(-2,))
    found = take_along_axis(moved, chosen, axis=-1)
    back = list(range(len(sizes) - 1))
    back.insert(axis, len(sizes) - 1)
    return [transpose(found, tuple(back)), transpose(chosen, tuple(back))]


def _reverse_sequence(node: OnnxNode) -> Expr:
    x, lengths = node.x(0), to(node.x(1), i64)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if {batch, time} != {0, 1} or rank(x) < 2:
        node.malformed("ReverseSequence has the axes 0 and 1.", "0 and 1", f"{batch}, {time}")
    places = iota_like(x, axis=time, dtype=i64)
    form = tuple(shape(x)[at] if at == batch else index(1) for at in range(rank(x)))
    length = reshape(lengths, form)
    turned = subtract(subtract(length, like(1, length)), places)
    return take_along_axis(x, where(less(places, length), turned, places), axis=time)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Gather":          _gather,
    "GatherElements":  _gather_elements,
    "GatherND":        _gather_nd,
    "OneHot":          _one_hot,
    "Compress":        _compress,
    "NonZero":         _non_zero,
    "Unique":          _unique,
    "Scatter":         _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND":       _scatter_nd,
    "TopK":            _top_k,
    "ReverseSequence": _reverse_sequence,
}
# fmt: on
