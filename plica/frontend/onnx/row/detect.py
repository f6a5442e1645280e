"""Detection rows: non-maximum suppression, best box first."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from plica.frontend.measured import ONE, ZERO, amount, flat_places_of, matched, places_of, prefix
from plica.frontend.onnx.arithmetic import settled
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.repeat import repeated
from plica.frontend.onnx.row.suppression import suppression
from plica.frontend.onnx.row.word import Made, Row, as_scalar, dtype, like, rank, shape, to
from plica.frontend.onnx.run_time import demanded
from plica.frontend.word import select
from plica.ir.graph.expression import Const, Expr, Project, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import f32, i32, i64, known, product

WIDEST: Final = 1 << 31  # the limit of 32-bit box numbers


def _non_max_suppression(node: OnnxNode) -> Made:
    centred = node.flag("center_point_box")
    boxes, scores = node.x(0), node.x(1)
    if rank(boxes) != 3 or rank(scores) != 3 or known(shape(boxes)[2]) not in (None, 4):
        found = f"{node.type(0)} and {node.type(1)}"
        node.malformed("Boxes and scores have three axes.", "(b, n, 4) and (b, c, n)", found)
    batch, classes, count = shape(scores)
    # Numbers of boxes are as wide as their corners where they can be: as many are compared at once.
    kind = i32 if (known(count) or WIDEST) < WIDEST else i64
    boxes = matched(boxes, (batch, count, index(4)))
    most = ZERO if node.value(2) is None else to(as_scalar(node.x(2)), i64)
    overlap, boxes = _overlap(node, boxes)
    least = None if node.value(4) is None else as_scalar(node.x(4))
    if 0 in map(known, (batch, classes, count)):
        return const(np.zeros((0, 3), np.int64))
    sizes = [known(scalar) for scalar in (batch, classes, count)]
    if None not in sizes and dtype(boxes) is f32 and dtype(scores) is f32:
        least_ = () if least is None else (least,)
        numbers = [size for size in sizes if size is not None]
        return _one_by_one(node, numbers, boxes, scores, (most, overlap, *least_))
    if known(count) is None:  # one that no class wants, so that there is a first
        boxes = op.pad(boxes, ((0, 0), (0, 1), (0, 0)))
        scores = op.pad(scores, ((0, 0), (0, 0), (0, 1)), constant_values=-math.inf)
    if least is None:
        order = op.argsort(scores, axis=2, descending=True)
        wanted = order < amount(count)
        count = shape(scores)[2]
    else:
        order, wanted, count = _candidates(node, scores, scores > least)
    flat = op.reshape(order, (batch, classes * count))
    corners = [
        op.reshape(op.take_along_axis(corner, flat, axis=1, mode="clip"), (batch, classes, count))
        for corner in _corners(boxes, centred)
    ]
    # Remaining boxes have their own index, others one past the end; the kept one is the last.
    place, behind = (
        op.iota(shape=(batch, classes, count), axis=2, dtype=kind),
        to(amount(count), kind),
    )
    last = behind + to(ONE, kind)

    def first_of(state: Expr) -> Expr:
        return op.min(state, axis=(2,), keepdims=True)

    def turn(state: Expr, first: Expr, number: Expr) -> list[Expr]:
        left = state < behind
        chosen = op.logical_and(op.equal(state, first), left)
        at = to(first, i64)
        best = [op.take_along_axis(corner, at, axis=2, mode="clip") for corner in corners]
        over = op.logical_and(left, _covers(best, corners, overlap))
        new = op.where(chosen, last, op.where(over, behind, state))
        return [new, first_of(new), number + ONE]

    def goes_on(_: Expr, first: Expr, number: Expr) -> Expr:
        return op.logical_and(op.any(first < behind), number < most)

    start = op.where(wanted, place, behind)
    state, _, _ = repeated(node, [start, first_of(start), ZERO], goes_on, turn)
    rows = places_of(node, op.equal(state, last))
    box = op.gather_nd(order, rows)
    column = op.reshape(box, (shape(rows)[0], index(1)))
    return op.concat((op.slice(rows, (0,), (2,), axes=(1,)), column), axis=1)


def _one_by_one(
    node: OnnxNode, sizes: list[int], boxes: Expr, scores: Expr, settings: tuple[Expr, ...]
) -> Expr:
    """The rows of kept boxes with static sizes, by one sequential kernel."""
    most = settled(settings[0])
    room = min(sizes[2], max(0, int(most.numpy()))) if isinstance(most, Const) else sizes[2]
    if not room:
        return const(np.zeros((0, 3), np.int64))
    centred = node.flag("center_point_box")
    kernel = suppression(sizes, room, centred=centred, has_least=len(settings) > 2)
    expr = node.call(kernel, "suppression", boxes, scores, *settings)
    return prefix(Project(expr, 0), node.measured(Project(expr, 1)))


def _overlap(node: OnnxNode, boxes: Expr) -> tuple[Expr, Expr]:
    """How much of two boxes may be common, as a part of both, and the boxes; parts are from 0 to
    1, which is seen when the model runs where it is not known."""
    if (given := node.value(3)) is None:
        return like(0, boxes), boxes
    if given.numbers() is not None and not 0 <= float(node.scalar(3)) <= 1:
        message = "The iou_threshold of NonMaxSuppression is a part."
        node.malformed(message, "from 0 to 1", str(node.scalar(3)))
    overlap = as_scalar(given.expr)
    zero, one = (like(each, overlap) for each in (0, 1))
    is_part = op.logical_and(overlap >= zero, overlap <= one)
    return overlap, demanded(node, boxes, is_part, "overlap")


def _candidates(node: OnnxNode, scores: Expr, chosen: Expr) -> tuple[Expr, Expr, Scalar]:
    """The selected boxes of each class, best first; which are present, padded to the largest class;
    and that size.

    Only these are sorted. They are grouped by class, so a class starts where earlier ones end.
    """
    batch, classes, count = shape(scores)
    every = (batch, classes, index(1))
    counts = op.sum(to(chosen, i64), axis=(2,), keepdims=True)
    own = op.reshape(counts, (product(every),))
    size = node.measured(op.max(op.concat((own, const([1], i64)), axis=0)), "candidates")
    flat = flat_places_of(node, chosen)
    many = shape(flat)[0]
    boxes = flat % amount(count)
    boxes = op.concat((boxes, const([0], i64)), axis=0)  # where there is none at all
    starts = op.reshape(op.cumsum(own, axis=0) - own, every)
    place = op.iota(shape=(size,), dtype=i64)
    order = op.take(boxes, op.minimum(starts + place, amount(many)), axis=0)
    there = place < counts
    best = op.take_along_axis(scores, order, axis=2, mode="clip")
    rank_ = op.argsort(op.where(there, best, like(-math.inf, best)), axis=2, descending=True)
    order, there = (op.take_along_axis(x, rank_, axis=2, mode="clip") for x in (order, there))
    return order, there, size


def _corners(boxes: Expr, centred: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """The least and the greatest places of each box on both axes."""
    a, b, c, d = (select(boxes, at, axis=2) for at in range(4))
    if centred:
        half = like(0.5, boxes)
        c, d = c * half, d * half
        a, b, c, d = a - c, b - d, a + c, b + d
    return op.minimum(a, c), op.minimum(b, d), op.maximum(a, c), op.maximum(b, d)


def _covers(best: list[Expr], corners: list[Expr], overlap: Expr) -> Expr:
    """For each box whether it has more in common with the best of its class than is allowed."""
    zero = like(0, corners[0])

    def area(of: list[Expr]) -> Expr:
        return (of[2] - of[0]) * (of[3] - of[1])

    def along(axis: int) -> Expr:
        ends, starts = (
            op.minimum(best[axis + 2], corners[axis + 2]),
            op.maximum(best[axis], corners[axis]),
        )
        return op.maximum(ends - starts, zero)

    common = along(0) * along(1)
    union = area(best) + area(corners) - common
    there = union > zero
    share = common / op.where(there, union, like(1, union))
    return op.logical_and(there, share > overlap)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "NonMaxSuppression": _non_max_suppression,
}
# fmt: on
