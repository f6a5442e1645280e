"""Rows of detection: which boxes are kept, which is a matter of values and not of shapes.

How many boxes there are depends on every score, so the inputs must be known when the model is read:
`plica.compile` reads it for the values of each call.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row
from plica.frontend.onnx.value import Array
from plica.ir.graph.expression import const
from plica.ir.type.dtype import i64

MOST_BOXES: Final = 1 << 16


def _non_max_suppression(node: OnnxNode) -> Made:
    centred = node.flag("center_point_box")
    boxes, scores = node.numbers(0), node.numbers(1)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
        found = f"{boxes.shape} and {scores.shape}"
        node.malformed("Boxes and scores have three axes.", "(b, n, 4) and (b, c, n)", found)
    if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        node.malformed("There is no score for each box.", str(boxes.shape), str(scores.shape))
    if boxes.shape[1] > MOST_BOXES:
        node.unsupported("There are too many boxes.", str(MOST_BOXES), str(boxes.shape[1]))
    most, overlap, least = (None if node.value(at) is None else node.scalar(at) for at in (2, 3, 4))
    kept: list[tuple[int, int, int]] = []
    for batch, of_batch in enumerate(boxes):
        corners = _corners(of_batch, centred)
        for kind, of_class in enumerate(scores[batch]):
            chosen = _chosen(corners, of_class, int(most or 0), float(overlap or 0.0), least)
            kept += [(batch, kind, box) for box in chosen]
    return const(np.asarray(kept, np.int64).reshape(-1, 3), i64)


def _corners(boxes: Array, centred: bool) -> Array:
    """The least and the greatest places of each box on both axes."""
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        ends = middle - half, middle + half
    else:
        ends = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(*ends), np.maximum(*ends)], axis=1)


def _chosen(
    corners: Array, scores: Array, most: int, overlap: float, least: float | None
) -> list[int]:
    """The boxes of one class, best first, without those that lie over a better one."""
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= most or (least is not None and not scores[box] > least):
            break
        low = np.maximum(corners[kept, :2], corners[box, :2])
        high = np.minimum(corners[kept, 2:], corners[box, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[kept] + areas[box] - common
        covered = np.divide(common, union, out=np.zeros_like(common), where=union > 0) > overlap
        if not covered.any():
            kept.append(int(box))
    return kept


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "NonMaxSuppression": _non_max_suppression,
}
# fmt: on
