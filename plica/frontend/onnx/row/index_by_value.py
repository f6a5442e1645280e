"""Rows whose results are as long as their values say: what is not zero, what differs, the first k.

They are made as long as they can become, with how many there are beside them (`argwhere`,
`unique`, an order), and cut to that number, which is measured.
"""

from __future__ import annotations

from plica.frontend.chosen_place import places_of
from plica.frontend.measured import ONE, amount, places, prefix
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, shape, to
from plica.ir.graph.expression import Expr, Project
from plica.ir.loop.scalar import Scalar
from plica.ir.op.comparison import equal, less
from plica.ir.op.create import full
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, multiply, subtract
from plica.ir.op.index import take, take_along_axis, where
from plica.ir.op.join import concat
from plica.ir.op.order import argsort, unique
from plica.ir.op.reduction import min_, sum_
from plica.ir.op.shape import expand_dims, match_shape, moveaxis, reshape, transpose
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import i64


def non_zero_by_value(node: OnnxNode, x: Expr) -> Expr:
    """NonZero: a column for each place."""
    return transpose(places_of(node, x), (1, 0))


def compress_by_value(node: OnnxNode, x: Expr, condition: Expr, axis: int) -> Expr:
    """Compress: the places along an axis that a vector of bools chooses."""
    rows = places_of(node, condition)
    return take(x, reshape(rows, (shape(rows)[0],)), axis=axis)


def unique_by_value(node: OnnxNode, x: Expr, in_order: bool) -> Made:
    """Unique: the different elements, the first place of each, which each is, how often."""
    found = unique(x, sorted=in_order)
    values, first, inverse, counts, count = (Project(found, at) for at in range(5))
    size = node.measured(count)
    return [prefix(values, size), prefix(first, size), inverse, prefix(counts, size)]


def unique_along(node: OnnxNode, x: Expr, axis: int, in_order: bool) -> Made:
    """Unique along an axis: the same of its different slices, in the order of words."""
    rows = moveaxis(x, axis, 0)
    count, *rest = shape(rows)
    found = unique(_numbered(reshape(rows, (count, product(rest)))), sorted=in_order)
    _, first, inverse, counts, number = (Project(found, at) for at in range(5))
    size = node.measured(number, axis)
    chosen = prefix(first, size)
    return [take(x, chosen, axis=axis), chosen, inverse, prefix(counts, size)]


def _numbered(rows: Expr) -> Expr:
    """A number for each row of a matrix: of two rows the one that is less, by the first element in
    which they differ, has the lower number, and equal ones have the same.

    Two columns at a time become one: each element is which of all different ones it is, and a pair
    of such numbers is a number again.  Where it is open how often that takes, each row is held to
    each other one.
    """
    count, width = shape(rows)
    if (columns := known(width)) is None:
        return _held_to_others(rows)
    if columns == 0:
        return full(shape=(count,), value=0, dtype=i64)
    while columns > 1:
        ranks, half = reshape(_which(rows), (count, columns)), columns // 2
        pairs = reshape(slice_(ranks, (0,), (2 * half,), axes=(1,)), (count, half, 2))
        left, right = (
            reshape(slice_(pairs, (at,), (at + 1,), axes=(2,)), (count, half)) for at in (0, 1)
        )
        rows = add(multiply(left, amount(count * columns)), right)
        if columns % 2:
            rows = concat((rows, slice_(ranks, (2 * half,), (columns,), axes=(1,))), axis=1)
        columns -= half
    return reshape(rows, (count,))


def _which(x: Expr) -> Expr:
    """For each element, flat, how many different ones are less."""
    return Project(unique(x, sorted=True), 2)


def _held_to_others(rows: Expr) -> Expr:
    """For each row, how many rows are less; they have an element."""
    count, width = shape(rows)
    flat = _which(match_shape(rows, (count, width), least=(width - 1,)))
    one, other = (expand_dims(reshape(flat, (count, width)), (at,)) for at in (1, 0))
    last = subtract(amount(width), ONE)
    differ = min_(where(equal(one, other), last, reshape(places(width), (1, 1, width))), axis=(2,))
    start = multiply(places(count), amount(width))
    mine, its = (take(flat, add(differ, expand_dims(start, (at,)))) for at in (1, 0))
    return sum_(to(less(its, mine), i64), axis=(1,))


def top_by_value(node: OnnxNode, x: Expr, k: Scalar, axis: int, largest: bool) -> Made:
    """TopK: the first k in order; there must be so many."""
    order = prefix(argsort(x, axis=axis, descending=largest), k, axis)
    return [take_along_axis(x, order, axis=axis, mode="clip"), order]
