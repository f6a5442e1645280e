"""Rows of products of tensors: dot_general, convolutions, normalisations, factorisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np
from attrs import evolve

from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.reduction import Rows
from plica.frontend.stablehlo.row.shape import cut, padded, spread
from plica.frontend.word import like, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, bool_

MAX_COLUMNS: Final = 64
"""Triangular systems and factorisations are written out, for no more columns than this."""


def _dot_general(node: HloNode) -> Expr:
    numbers = node.attribute("dot_dimension_numbers")
    if isinstance(numbers, dict):
        batches = [numbers.get(f"{side}_batching_dimensions", []) for side in ("lhs", "rhs")]
        sums = [numbers.get(f"{side}_contracting_dimensions", []) for side in ("lhs", "rhs")]
    else:
        batches = node.attribute("batching_dims", default=[[], []])
        sums = node.attribute("contracting_dims", default=[[], []])
    x, y = node.operands
    for side, axes in zip((x, y, x, y), (*batches, *sums), strict=True):
        good = isinstance(axes, list) and all(isinstance(axis, int) for axis in axes)
        if not good or not {*axes} <= {*range(rank(side))}:
            node.unsupported("Axes are summed, or are of the batch.", "numbers of axes", str(axes))
    of = node.dtype()
    wide = of if of != bool_ else DType("i32")
    x, y = to(x, wide), to(y, wide)
    free = [
        [a for a in range(rank(side)) if a not in (*batch, *inner)]
        for side, batch, inner in zip((x, y), batches, sums, strict=True)
    ]
    count = prod([sizes(x)[a] for a in sums[0]])
    batch = [sizes(x)[a] for a in batches[0]]
    rows, columns = ([sizes(s)[a] for a in f] for s, f in zip((x, y), free, strict=True))
    left = op.reshape(_arranged(x, (*batches[0], *free[0], *sums[0])), (*batch, prod(rows), count))
    right = op.reshape(_arranged(y, (*batches[1], *sums[1], *free[1])),
                       (*batch, count, prod(columns)))  # fmt: skip
    expr = op.reshape(op.matmul(left, right), (*batch, *rows, *columns))
    return op.not_equal(expr, like(0, expr)) if of is bool_ else expr


def _arranged(x: Expr, axes: Sequence[int]) -> Expr:
    return x if list(axes) == list(range(rank(x))) else op.transpose(x, axes=tuple(axes))


def _convolution(node: HloNode) -> Expr:
    x, weight = node.operands[:2]
    window = node.attribute("window", default=node.op.attributes)
    labels = node.attribute("dim_numbers", "dimension_numbers")
    space = rank(x) - 2
    names = [str(at) for at in range(space)]
    wanted = [sorted(("b", "f", *names)), sorted(("o", "i", *names)), sorted(("b", "f", *names))]
    listed = isinstance(labels, list) and all(isinstance(side, list) for side in labels)
    labels = [[str(each) for each in side] for side in labels] if listed else []
    if [sorted(side) for side in labels] != wanted or not isinstance(window, Mapping):
        node.unsupported("The axes are not named.", "[b, f, 0]x[o, i, 0]->[b, f, 0]", str(labels))

    def read(*names: str, fill: int = 1) -> list[int]:
        found = [int(number) for number in given.numbers(*names, default=[fill] * space)]
        if len(found) != space:
            node.unsupported(f"{names[0]} is a number for each axis.", str(space), str(found))
        return found

    given = evolve(node, op=evolve(node.op, attributes=window))
    if len(node.operands) > 2:
        given = evolve(node, op=evolve(node.op, attributes={"padding": node.constant(2)}))
    pads = given.pairs(space, "pad", "padding")
    groups = node.number("feature_group_count", default=1)
    batches = node.number("batch_group_count", default=1)
    of = node.dtype()
    x = _arranged(to(x, of), [labels[0].index(each) for each in ("b", "f", *names)])
    weight = _arranged(to(weight, of), [labels[1].index(each) for each in ("o", "i", *names)])
    turned = tuple([a + 2 for a, r in enumerate(read("reverse", "window_reversal", fill=0)) if r])
    if turned:
        weight = op.flip(weight, axis=turned)
    gaps = [each - 1 for each in read("lhs_dilate", "lhs_dilation")]
    x = padded(x, const(0, of) if of.is_integer else const(0.0, of), [0, 0, *[a for a, _ in pads]],
               [0, 0, *[b for _, b in pads]], [0, 0, *gaps])  # fmt: skip
    if batches > 1:  # each share of the examples has outputs of its own
        n, c, *rest = sizes(x)
        x = op.reshape(x, (batches, n // batches, c, *rest))
        x = op.reshape(op.moveaxis(x, source=0, destination=1), (n // batches, batches * c, *rest))
        groups = batches
    steps, apart = read("stride", "window_strides"), read("rhs_dilate", "rhs_dilation")
    if space == 0:
        y = _dense(x, weight, groups)
    else:
        y = op.nn.conv(x, weight, strides=tuple(steps), dilation=tuple(apart), groups=groups)
    order = ["b", "f", *names]
    return _arranged(y, [order.index(each) for each in labels[2]])


def _dense(x: Expr, weight: Expr, groups: int) -> Expr:
    """A convolution without places."""
    n, (outputs, inner) = sizes(x)[0], sizes(weight)
    left = op.transpose(op.reshape(x, (n, groups, inner)), axes=(1, 0, 2))
    right = op.transpose(op.reshape(weight, (groups, outputs // groups, inner)), axes=(0, 2, 1))
    return op.reshape(op.transpose(op.matmul(left, right), axes=(1, 0, 2)), (n, outputs))


# --- normalisations -------------------------------------------------------------------------------


def _channel(node: HloNode) -> tuple[int, tuple[int, ...], float]:
    axis = node.axis("feature_index")
    rest = tuple([a for a in range(rank(node.x)) if a != axis])
    return axis, rest, float(node.attribute("epsilon", default=0.0))


def _batch_norm_inference(node: HloNode) -> Expr:
    axis, _, epsilon = _channel(node)
    x = node.x
    scale, offset, mean, variance = [spread(e, sizes(x), [axis]) for e in node.operands[1:]]
    return (x - mean) / op.sqrt(variance + like(epsilon, x)) * scale + offset


def _batch_norm_training(node: HloNode) -> list[Expr]:
    axis, rest, epsilon = _channel(node)
    x = node.x
    mean = op.mean(x, axis=rest)
    away = x - spread(mean, sizes(x), [axis])
    variance = op.mean(op.square(away), axis=rest)
    scale, offset, wide = [
        spread(each, sizes(x), [axis]) for each in (*node.operands[1:3], variance)
    ]
    return [away / op.sqrt(wide + like(epsilon, x)) * scale + offset, mean, variance]


def _batch_norm_grad(node: HloNode) -> list[Expr]:
    axis, rest, epsilon = _channel(node)
    x, scale, mean, variance, grad = node.operands
    shape = sizes(x)
    count = prod([shape[a] for a in rest])
    away = x - spread(mean, shape, [axis])
    inverse = op.rsqrt(variance + like(epsilon, variance))
    by_offset = op.sum(grad, axis=rest)
    by_scale = op.sum(grad * away, axis=rest) * inverse
    part = spread(by_offset, shape, [axis])
    other = away * spread(by_scale * inverse, shape, [axis])
    factor = spread(scale * inverse / like(count, scale), shape, [axis])
    return [factor * (like(count, x) * grad - part - other), by_scale, by_offset]


# --- triangles ------------------------------------------------------------------------------------


def _column(a: Expr, at: int) -> Expr:
    """Column `at` of matrices, as matrices of one column."""
    shape = sizes(a)
    low = [0] * (len(shape) - 1)
    return cut(a, [*low, at], [*shape[:-1], at + 1])


def _row(a: Expr, at: int) -> Expr:
    shape = sizes(a)
    low = [0] * (len(shape) - 2)
    return cut(a, [*low, at, 0], [*shape[:-2], at + 1, shape[-1]])


def _few(node: HloNode, count: int) -> None:
    if count > MAX_COLUMNS:
        node.unsupported("The matrix is too large.", f"{MAX_COLUMNS} columns", str(count))


def _cholesky(node: HloNode) -> Expr:
    """Column by column: the remaining matrix is reduced by the product of each column."""
    x = node.x
    lower = node.attribute("lower", default=False)
    if not lower:
        x = op.swapaxes(x, axis1=-1, axis2=-2)
    count = sizes(x)[-1]
    _few(node, count)
    columns: list[Expr] = []
    for at in range(count):
        column = _column(x, at)
        mask = const((np.arange(count) >= at).reshape(count, 1), bool_)
        part = column / op.sqrt(_row(column, at))
        part = op.where(mask, part, like(0, part))
        columns.append(part)
        x = x - part * op.swapaxes(part, axis1=-1, axis2=-2)
    expr = op.concat(tuple(columns), axis=rank(x) - 1) if columns else x
    return expr if lower else op.swapaxes(expr, axis1=-1, axis2=-2)


def _triangular_solve(node: HloNode) -> Expr:
    """Row by row, each from those that were found."""
    a, b = node.operands
    left, lower = node.attribute("left_side"), node.attribute("lower")
    how = node.word("transpose_a", default="NO_TRANSPOSE")
    if how in ("TRANSPOSE", "ADJOINT"):
        a, lower = op.swapaxes(a, axis1=-1, axis2=-2), not lower
    if not left:  # x a = b as a' x' = b'
        a, b = (op.swapaxes(each, axis1=-1, axis2=-2) for each in (a, b))
        lower = not lower
    count = sizes(a)[-1]
    _few(node, count)
    rows: dict[int, Expr] = {}
    for at in range(count) if lower else reversed(range(count)):
        value = _row(b, at)
        if rows:
            order = sorted(rows)
            known = op.concat(tuple([rows[each] for each in order]), axis=rank(b) - 2)
            line = _row(a, at)
            low = [0] * (rank(a) - 1)
            part = cut(line, [*low, order[0]], [*sizes(line)[:-1], order[-1] + 1])
            value = value - op.matmul(part, known)
        if not node.attribute("unit_diagonal", default=False):
            value = value / _column(_row(a, at), at)
        rows[at] = value
    found = op.concat(tuple([rows[at] for at in range(count)]), axis=rank(b) - 2) if rows else b
    return found if left else op.swapaxes(found, axis1=-1, axis2=-2)


TABLE: Final[dict[str, Rows]] = {
    "dot_general": _dot_general, "dot": _dot_general, "convolution": _convolution,
    "dynamic_conv": _convolution, "batch_norm_inference": _batch_norm_inference,
    "batch_norm_training": _batch_norm_training, "batch_norm_grad": _batch_norm_grad,
    "cholesky": _cholesky, "triangular_solve": _triangular_solve,
}  # fmt: skip
