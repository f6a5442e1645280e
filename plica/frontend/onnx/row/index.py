"""Indexing by values: gathering, scattering, ordering."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.measured import (
    ONE,
    Piece,
    amount,
    flat_places_of,
    matched,
    places,
    places_of,
    prefix,
)
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, as_scalar, axis_in, dtype, like, rank, shape, to
from plica.frontend.onnx.run_time import pieces, size_from
from plica.frontend.onnx.value import TensorValue
from plica.frontend.word import select
from plica.ir.graph.expression import Expr, Project, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.index import length
from plica.ir.op.namespace import op
from plica.ir.op.put import COMBINE
from plica.ir.type import f64, i64, known, product, same_dim


def _gather_elements(node: OnnxNode) -> Expr:
    return op.take_along_axis(node.x(0), node.x(1), axis=node.integer("axis", 0))


def _gather_nd(node: OnnxNode) -> Expr:
    return op.gather_nd(node.x(0), node.x(1), batch_dims=node.integer("batch_dims", 0))


def _one_hot(node: OnnxNode) -> Expr:
    given = node.need(1)
    depth: int | Scalar
    if given.numbers() is None:
        depth = size_from(node, pieces(node, 1)[0] if dtype(given.expr).is_integer else
                          to(as_scalar(given.expr), i64), "depth")  # fmt: skip
    else:
        depth = int(node.scalar(1))
    indices, values = node.x(0), node.x(2)
    # Float indices are valid only if integral, so they are compared as floats.
    indices = to(indices, i64 if dtype(indices).is_integer else f64)
    axis = axis_in(node, node.integer("axis", -1), rank(indices) + 1)
    if isinstance(depth, int) and depth < 0:
        node.malformed("OneHot has a depth of 0 or more.", "0 or more", str(depth))
    ahead = indices + to(amount(depth), dtype(indices))
    wide = op.expand_dims(op.where(indices < like(0, indices), ahead, indices), axis=(axis,))
    steps = tuple(depth if at == axis else 1 for at in range(rank(wide)))
    places = op.reshape(op.iota(shape=(depth,), dtype=dtype(wide)), steps)
    off, on = (select(values, at) for at in (0, 1))
    return op.where(op.equal(wide, places), on, off)


def _compress(node: OnnxNode) -> Expr:
    x, axis = node.x(0), 0
    if node.has("axis"):
        axis = axis_in(node, node.integer("axis"), rank(x))
    else:
        x = op.ravel(x)
    # Condition elements past the end of the axis are ignored.
    condition = op.slice(node.x(1), (0,), (shape(x)[axis],))
    if (flags := TensorValue(condition).numbers()) is not None:
        return op.take(x, const(np.flatnonzero(flags).astype(np.int64)), axis=axis)
    return op.take(x, flat_places_of(node, condition), axis=axis)


def _non_zero(node: OnnxNode) -> Expr:
    """A column for each place."""
    if node.need(0).numbers() is not None:
        return const(np.array(np.nonzero(np.atleast_1d(node.numbers(0))), np.int64))
    x = node.x(0)
    return op.transpose(places_of(node, x if rank(x) else op.reshape(x, (1,))), (1, 0))


def _unique(node: OnnxNode) -> Made:
    """The different elements or slices, the first place of each, which each is, and how often."""
    x, in_order = node.x(0), node.flag("sorted", True)
    if node.has("axis"):
        return _unique_along(node, x, axis_in(node, node.integer("axis"), rank(x)), in_order)
    return _unique_elements(node, x, in_order)


def _unique_elements(node: OnnxNode, x: Expr, in_order: bool) -> Made:
    """Unique: the different elements, the first place of each, which each is, how often."""
    expr = op.unique(x, sorted=in_order)
    values, first, inverse, counts, count = (Project(expr, at) for at in range(5))
    size = node.measured(count)
    return [prefix(values, size), prefix(first, size), inverse, prefix(counts, size)]


def _unique_along(node: OnnxNode, x: Expr, axis: int, in_order: bool) -> Made:
    """Unique along an axis: the same of its different slices, in the order of words."""
    rows = op.moveaxis(x, axis, 0)
    count, *rest = shape(rows)
    expr = op.unique(_numbered(op.reshape(rows, (count, product(rest)))), sorted=in_order)
    _, first, inverse, counts, number = (Project(expr, at) for at in range(5))
    size = node.measured(number, axis)
    chosen = prefix(first, size)
    return [op.take(x, chosen, axis=axis), chosen, inverse, prefix(counts, size)]


def _numbered(rows: Expr) -> Expr:
    """A number for each row of a matrix: of two rows the one that is less, by the first element in
    which they differ, has the lower number, and equal ones have the same.

    Two columns at a time are combined: each element is its rank among distinct ones, and a pair of
    ranks is a number again. If the number of columns is open, each row is compared with every
    other.
    """
    count, width = shape(rows)
    if (columns := known(width)) is None:
        return _held_to_others(rows)
    if columns == 0:
        return op.full(shape=(count,), value=0, dtype=i64)
    while columns > 1:
        ranks, half = op.reshape(_which(rows), (count, columns)), columns // 2
        pairs = op.reshape(op.slice(ranks, (0,), (2 * half,), axes=(1,)), (count, half, 2))
        left, right = (select(pairs, at, axis=2) for at in (0, 1))
        rows = left * amount(count * columns) + right
        if columns % 2:
            rows = op.concat((rows, op.slice(ranks, (2 * half,), (columns,), axes=(1,))), axis=1)
        columns -= half
    return op.reshape(rows, (count,))


def _which(x: Expr) -> Expr:
    """For each element, flat, how many different ones are less."""
    return Project(op.unique(x, sorted=True), 2)


def _held_to_others(rows: Expr) -> Expr:
    """For each row, how many rows are less; they have an element."""
    count, width = shape(rows)
    flat = _which(op.match_shape(rows, (count, width), least=(width - 1,)))
    one, other = (op.expand_dims(op.reshape(flat, (count, width)), (at,)) for at in (1, 0))
    last = amount(width) - ONE
    differ = op.min(
        op.where(op.equal(one, other), last, op.reshape(places(width), (1, 1, width))), axis=(2,)
    )
    start = places(count) * amount(width)
    mine, its = (op.take(flat, differ + op.expand_dims(start, (at,))) for at in (1, 0))
    return op.sum(to(its < mine, i64), axis=(1,))


# --- scattering ----------------------------------------------------------------------------------


def _reduction(node: OnnxNode) -> str:
    kind = node.text("reduction", "none")
    if kind != "none" and kind not in COMBINE:
        node.malformed("There is no such reduction.", ", ".join(COMBINE), repr(kind))
    return "replace" if kind == "none" else kind


def _scatter_elements(node: OnnxNode) -> Expr:
    axis = axis_in(node, node.integer("axis", 0), node.rank())
    return _scattered(node, node.x(0), axis, 0)


def _scattered(node: OnnxNode, x: Expr, axis: int, first: int) -> Expr:
    """x with updates; along other axes, from the first on, the indices may be shorter than x: the
    rest, known at run time, is unchanged."""
    for at, (mine, other) in enumerate(zip(shape(x), node.shape(1), strict=True)):
        numbers = known(mine) is not None and known(other) is not None
        if at >= first and at != axis and not numbers and not same_dim(mine, other):
            part = _scattered(node, prefix(x, other, at), axis, at + 1)
            rest = op.slice(x, (other,), (None,), None, (at,))
            return matched(op.concat((part, rest), axis=at), shape(x))
    return op.scatter_elements(x, node.x(1), node.x(2), axis=axis, reduction=_reduction(node))


def _scatter_nd(node: OnnxNode) -> Expr:
    return op.scatter_nd(node.x(0), node.x(1), node.x(2), reduction=_reduction(node))


def _tensor_scatter(node: OnnxNode) -> Expr:
    """Each place of the cache looks whether an update is meant for it."""
    cache, update, starts = node.x(0), node.x(1), node.maybe(2)
    mode = node.text("mode", "linear")
    at = axis_in(node, node.integer("axis", -2), rank(cache))
    fits = rank(update) == rank(cache) and at > 0 and mode in ("linear", "circular")
    if not fits or any(
        a != b for o, (a, b) in enumerate(zip(shape(cache), shape(update), strict=True)) if o != at
    ):
        found = f"{node.type(1)}, {mode}"
        node.malformed("The update does not fit the cache.", str(node.type(0)), found)
    along_axis = tuple(shape(cache)[at] if other == at else 1 for other in range(rank(cache)))
    times = op.reshape(op.iota(shape(cache)[at : at + 1]), along_axis)
    if starts is not None:
        first = to(starts, i64)
        if mode == "linear":  # taking from the places themselves refuses what is outside
            whole, more = length(cache, at), length(update, at) - like(1, first)
            last = op.where(first < like(0, first), whole, first + more)
            first = op.take(op.iota(shape(cache)[at : at + 1]), last) - more
        times = times - op.reshape(first, (*shape(first), *(1,) * (rank(cache) - 1)))
    if mode == "circular":
        times = times % length(cache, at)
    inside = op.logical_and(like(0, times) <= times, times < length(update, at))
    if known(shape(update)[at]) == 1:  # as in a step of decoding: there is nothing to choose
        return op.where(inside, update, cache)
    every = op.broadcast_to(times, shape(cache))
    return op.where(inside, op.take_along_axis(update, every, axis=at, mode="clip"), cache)


# --- ordering ------------------------------------------------------------------------------------


def _top_k(node: OnnxNode) -> Made:
    x = node.x(0)
    axis = axis_in(node, node.integer("axis", -1), rank(x))
    largest, _ = node.flag("largest", True), node.flag("sorted", True)
    given: Piece = pieces(node, 1)[0] if node.opset >= 10 else node.integer("k")
    length = known(shape(x)[axis])
    if not isinstance(given, int) or length is None:
        order = prefix(
            op.argsort(x, axis=axis, descending=largest), size_from(node, given, "k"), axis
        )
        return [op.take_along_axis(x, order, axis=axis, mode="clip"), order]
    k = given
    if not 0 <= k <= length:
        node.malformed("TopK takes no more than there is.", f"0 to {length}", str(k))
    expr = op.topk(x, k=k, axis=axis, largest=largest)
    return [Project(expr, 0), Project(expr, 1)]


def _reverse_sequence(node: OnnxNode) -> Expr:
    x = node.x(0)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if {batch, time} != {0, 1} or rank(x) < 2:
        node.malformed("ReverseSequence has the axes 0 and 1.", "0 and 1", f"{batch}, {time}")
    return op.reverse_sequence(x, node.x(1), axis=time, batch_axis=batch)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Gather":          lambda node: op.take(node.x(0), node.x(1), axis=node.integer("axis", 0)),
    "GatherElements":  _gather_elements,
    "GatherND":        _gather_nd,
    "OneHot":          _one_hot,
    "Compress":        _compress,
    "NonZero":         _non_zero,
    "Unique":          _unique,
    "Scatter":         _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND":       _scatter_nd,
    "TensorScatter":   _tensor_scatter,
    "TopK":            _top_k,
    "ReverseSequence": _reverse_sequence,
}
# fmt: on
