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
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import i64


def non_zero_by_value(node: OnnxNode, x: Expr) -> Expr:
    """NonZero: a column for each place."""
    return op.transpose(places_of(node, x), (1, 0))


def compress_by_value(node: OnnxNode, x: Expr, condition: Expr, axis: int) -> Expr:
    """Compress: the places along an axis that a vector of bools chooses."""
    rows = places_of(node, condition)
    return op.take(x, op.reshape(rows, (shape(rows)[0],)), axis=axis)


def unique_by_value(node: OnnxNode, x: Expr, in_order: bool) -> Made:
    """Unique: the different elements, the first place of each, which each is, how often."""
    found = op.unique(x, sorted=in_order)
    values, first, inverse, counts, count = (Project(found, at) for at in range(5))
    size = node.measured(count)
    return [prefix(values, size), prefix(first, size), inverse, prefix(counts, size)]


def unique_along(node: OnnxNode, x: Expr, axis: int, in_order: bool) -> Made:
    """Unique along an axis: the same of its different slices, in the order of words."""
    rows = op.moveaxis(x, axis, 0)
    count, *rest = shape(rows)
    found = op.unique(_numbered(op.reshape(rows, (count, product(rest)))), sorted=in_order)
    _, first, inverse, counts, number = (Project(found, at) for at in range(5))
    size = node.measured(number, axis)
    chosen = prefix(first, size)
    return [op.take(x, chosen, axis=axis), chosen, inverse, prefix(counts, size)]


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
        return op.full(shape=(count,), value=0, dtype=i64)
    while columns > 1:
        ranks, half = op.reshape(_which(rows), (count, columns)), columns // 2
        pairs = op.reshape(op.slice(ranks, (0,), (2 * half,), axes=(1,)), (count, half, 2))
        left, right = (
            op.reshape(op.slice(pairs, (at,), (at + 1,), axes=(2,)), (count, half)) for at in (0, 1)
        )
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


def top_by_value(node: OnnxNode, x: Expr, k: Scalar, axis: int, largest: bool) -> Made:
    """TopK: the first k in order; there must be so many."""
    order = prefix(op.argsort(x, axis=axis, descending=largest), k, axis)
    return [op.take_along_axis(x, order, axis=axis, mode="clip"), order]
