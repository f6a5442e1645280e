"""Rows whose results are as long as their values say: what is not zero, what differs, the first k.

They are made as long as they can become, with how many there are beside them (`argwhere`,
`unique`, an order), and cut to that number, which is measured.
"""

from __future__ import annotations

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, rank, shape
from plica.frontend.onnx.run_time import amount, prefix
from plica.ir.graph.expression import Expr, Project
from plica.ir.loop.scalar import Scalar
from plica.ir.op.index import take, take_along_axis
from plica.ir.op.join import stack
from plica.ir.op.order import argsort, argwhere, unique, unravelled
from plica.ir.op.shape import reshape, transpose
from plica.ir.type.dim import product


def places_of(node: OnnxNode, x: Expr, hint: object = "") -> Expr:
    """The places of what is not zero, a row for each.

    They are numbers first, and a place on each axis once it is known how many there are.
    """
    if rank(x) < 2:
        found = argwhere(x)
        return prefix(Project(found, 0), node.measured(Project(found, 1), hint))
    flat = flat_places_of(node, x, hint)
    return stack(tuple(unravelled(flat, [amount(size) for size in shape(x)])), axis=1)


def flat_places_of(node: OnnxNode, x: Expr, hint: object = "") -> Expr:
    """The places of what is not zero in all of x, one number for each."""
    rows = places_of(node, reshape(x, (product(shape(x)),)), hint)
    return reshape(rows, (shape(rows)[0],))


def non_zero_by_value(node: OnnxNode, x: Expr) -> Expr:
    """NonZero: a column for each place."""
    return transpose(places_of(node, x), (1, 0))


def compress_by_value(node: OnnxNode, x: Expr, condition: Expr, axis: int | None) -> Expr:
    """Compress: the places along an axis that a vector of bools chooses."""
    rows = places_of(node, condition)
    chosen = reshape(rows, (shape(rows)[0],))
    if axis is None:
        return take(reshape(x, (product(shape(x)),)), chosen, axis=0)
    return take(x, chosen, axis=axis)


def unique_by_value(node: OnnxNode, x: Expr, in_order: bool) -> Made:
    """Unique: the different elements, the first place of each, which each is, how often."""
    found = unique(x, sorted=in_order)
    values, first, inverse, counts, count = (Project(found, at) for at in range(5))
    size = node.measured(count)
    return [prefix(values, size), prefix(first, size), inverse, prefix(counts, size)]


def top_by_value(node: OnnxNode, x: Expr, k: Scalar, axis: int, largest: bool) -> Made:
    """TopK: the first k in order; there must be so many."""
    order = prefix(argsort(x, axis=axis, descending=largest), k, axis)
    return [take_along_axis(x, order, axis=axis, mode="clip"), order]
