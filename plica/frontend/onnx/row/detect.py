"""Rows of detection: which boxes are kept, best first, none that lies over a better one.

Whether a box is kept depends on the better ones that are.  All are kept at first; then, turn after
turn, those that lie over one still kept are not, until nothing changes: the first box is right
after no turn, the next after one, and so on, and few turns are needed in practice.
"""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.index_by_value import places_of
from plica.frontend.onnx.row.repeat import repeated
from plica.frontend.onnx.row.word import Made, Row, as_scalar, like, rank, shape, to
from plica.frontend.onnx.run_time import ONE, ZERO, amount, matched, prefix
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op import comparison as compare
from plica.ir.op.create import full_like, iota
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, divide, maximum, minimum, multiply, subtract
from plica.ir.op.index import gather_nd, take_along_axis, where
from plica.ir.op.join import concat
from plica.ir.op.order import argsort
from plica.ir.op.reduction import any_, cumsum, max_, sum_
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64


def _non_max_suppression(node: OnnxNode) -> Made:
    centred = node.flag("center_point_box")
    boxes, scores = node.x(0), node.x(1)
    if rank(boxes) != 3 or rank(scores) != 3 or known(shape(boxes)[2]) != 4:
        found = f"{node.type(0)} and {node.type(1)}"
        node.malformed("Boxes and scores have three axes.", "(b, n, 4) and (b, c, n)", found)
    batch, classes, count = shape(scores)
    boxes = matched(boxes, (batch, count, index(4)))
    most = ZERO if node.value(2) is None else to(as_scalar(node.x(2)), i64)
    overlap = like(0, boxes) if node.value(3) is None else as_scalar(node.x(3))
    order = argsort(scores, axis=2, descending=True)
    if node.value(4) is None:
        wanted = full_like(scores, value=True, dtype="bool")
    else:
        wanted = compare.greater(scores, as_scalar(node.x(4)))
        # Only so many boxes of a class can be kept, and those come first in their order.
        best = max_(maximum(sum_(to(wanted, i64), axis=(2,)), ONE))
        size = node.measured(minimum(best, amount(count)), "candidates")
        order, count = prefix(order, size, 2), size
    wanted = take_along_axis(wanted, order, axis=2, mode="clip")
    corners = [
        take_along_axis(
            broadcast_to(expand_dims(each, (1,)), (batch, classes, shape(boxes)[1])),
            order,
            axis=2,
            mode="clip",
        )
        for each in _corners(boxes, centred)
    ]
    covers = _covers(corners, overlap)
    later = compare.less(iota(shape=(count, count), axis=1, dtype=i64),
                 iota(shape=(count, count), axis=0, dtype=i64))  # fmt: skip

    def turn(kept: Expr, _: Expr) -> list[Expr]:
        over = compare.logical_and(compare.logical_and(covers, later), expand_dims(kept, (2,)))
        new = compare.logical_and(wanted, compare.logical_not(any_(over, axis=(3,))))
        return [new, any_(compare.not_equal(to(new, i64), to(kept, i64)))]

    kept, _ = repeated(node, [wanted, const(True)], lambda _, changed: changed, turn)
    few = compare.less_equal(cumsum(to(kept, i64), axis=2), most)
    rows = places_of(node, compare.logical_and(kept, few))
    box = gather_nd(order, rows)
    column = reshape(box, (shape(rows)[0], index(1)))
    return concat((slice_(rows, (0,), (2,), axes=(1,)), column), axis=1)


def _corners(boxes: Expr, centred: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """The least and the greatest places of each box on both axes."""
    a, b, c, d = (
        reshape(slice_(boxes, (at,), (at + 1,), axes=(2,)), shape(boxes)[:2]) for at in range(4)
    )
    if centred:
        half = like(0.5, boxes)
        c, d = multiply(c, half), multiply(d, half)
        a, b, c, d = subtract(a, c), subtract(b, d), add(a, c), add(b, d)
    return minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)


def _covers(corners: list[Expr], overlap: Expr) -> Expr:
    """For each two boxes whether they have more in common than is allowed."""
    low1, low2, high1, high2 = corners
    zero = like(0, low1)
    area = multiply(subtract(high1, low1), subtract(high2, low2))

    def along(low: Expr, high: Expr) -> Expr:
        ends = minimum(expand_dims(high, (3,)), expand_dims(high, (2,)))
        starts = maximum(expand_dims(low, (3,)), expand_dims(low, (2,)))
        return maximum(subtract(ends, starts), zero)

    common = multiply(along(low1, high1), along(low2, high2))
    union = subtract(add(expand_dims(area, (3,)), expand_dims(area, (2,))), common)
    there = compare.greater(union, zero)
    share = divide(common, where(there, union, like(1, union)))
    return compare.logical_and(there, compare.greater(share, overlap))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "NonMaxSuppression": _non_max_suppression,
}
# fmt: on
