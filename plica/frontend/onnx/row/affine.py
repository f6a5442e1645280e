"""The row of grids that transformations of images are read by."""

from __future__ import annotations

from functools import reduce
from typing import Final

from plica.frontend.measured import amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, dtype, in_f32, rank, shape, to
from plica.frontend.onnx.run_time import pieces, size_from
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type import f64, known


def _affine_grid(node: OnnxNode) -> Expr:
    """Where a transformation of images reads each place: x counts along the last axis, from -1 to 1
    over all of it, or between the middles of the first and the last place."""
    theta, sizes, align = node.x(0), pieces(node, 1), node.flag("align_corners")
    count = len(sizes) - 2
    fits = rank(theta) == 3 and [*map(known, shape(theta)[1:])] == [count, count + 1]
    if count not in (2, 3) or not fits:
        wanted = "(N, 2, 3) and 4 sizes, or (N, 3, 4) and 5"
        node.malformed("The transformation does not fit.", wanted, f"{node.type(0)}, {len(sizes)}")
    batch, *spatial = (size_from(node, each, at) for at, each in enumerate((sizes[0], *sizes[2:])))
    matrix = in_f32(matched(theta, (batch, *shape(theta)[1:])))
    parts: list[Expr] = []
    for column in range(count + 1):
        part = op.slice(matrix, (column,), (column + 1,), axes=(2,))
        part = op.reshape(part, (batch, *(1,) * count, count))
        if column < count:
            axis = count - column
            at = to(_spread_out(spatial[axis - 1], align, (axis, count) == (1, 3)), dtype(matrix))
            part = part * along(at, axis, count + 2)
        parts.append(part)
    return to(reduce(op.add, parts), dtype(theta))


def _spread_out(size: Scalar, align: bool, deep: bool) -> Expr:
    """The coordinates of an axis from -1 to 1; a single one is at the start for the first of three
    axes, and at zero otherwise, as the standard defines."""
    at, whole = to(places(size), f64), to(amount(size), f64)
    one, two = const(1.0, f64), const(2.0, f64)
    if not align:
        middle = at * two + one
        return middle / whole - one
    step = two / (whole - one)
    if deep:
        step = op.where(op.equal(whole, one), const(0.0, f64), step)
    return at * step - one


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "AffineGrid": _affine_grid,
}
# fmt: on
