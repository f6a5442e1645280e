"""Scores: the post-processing of class or target scores in ai.onnx.ml.

Where onnxruntime and the standard's reference disagree about a file, it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import dtype, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type.dtype import f32, f64, i64

TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""In the order of their numbers in `TreeEnsemble`."""

NEARLY_ZERO: Final = 1e-7
"""SOFTMAX_ZERO leaves scores that are no further from 0 than that out of its sum."""


def samples(node: OnnxNode, at: int = 0) -> Expr:
    """The samples as rows of floats: one alone is a row; integers are f32."""
    x = node.x(at)
    if rank(x) not in (1, 2):
        message = f"{node.proto.op_type} takes one sample or rows of them."
        node.malformed(message, "rank 1 or 2", f"rank {rank(x)}")
    rows = op.reshape(x, (index(1), *shape(x))) if rank(x) == 1 else x
    return rows if dtype(rows) is f64 else to(rows, f32)


def transformed(node: OnnxNode, scores: Expr, how: str, columns: int) -> Expr:
    """Scores [samples, columns] after `post_transform`."""
    if how not in TRANSFORMS:
        node.malformed("There is no such post_transform.", ", ".join(TRANSFORMS), how)
    if how == "NONE":
        return scores
    if how == "PROBIT" or columns == 1:
        message = f"A post_transform of {columns} score(s) is not read as {how}."
        node.refused_for_good(message, "NONE, or several scores that are no PROBIT", how)
    if how == "LOGISTIC":
        return op.nn.sigmoid(scores)
    if how == "SOFTMAX":
        return op.nn.softmax(scores, axis=1)
    size = op.absolute(scores)
    greatest = op.max(scores, axis=(1,), keepdims=True)
    counts = size > like(NEARLY_ZERO, scores)
    # Near-zero scores are scaled like the others, but excluded from the sum.
    least = scores * op.exp(-greatest)
    others = op.exp(scores - greatest)
    total = op.sum(op.where(counts, others, like(0, scores)), axis=(1,), keepdims=True)
    return op.where(counts, others, least) / total


def labels_of(node: OnnxNode, name: str, rows: int | None = None) -> tuple[int, ...]:
    """The labels of classes, which are integers."""
    if node.texts("classlabels_strings"):
        hint = "Export the model with integer labels (label encoding before training)."
        node.refused_for_good("There are no strings.", "labels that are integers", "strings", hint)
    found = node.integers(name) or ()
    if len(found) < 2 or (rows is not None and rows not in (1, len(found))):
        message = f"{node.proto.op_type} has two classes or more, and a score for each."
        node.refused_for_good(message, f"{rows or 'two or more'} labels", str(len(found)))
    return found


def best_label(scores: Expr, labels: Sequence[int]) -> Expr:
    """The label of the greatest score of each sample, the first of equals."""
    best = op.argmax(scores, axis=1)
    return op.take(const(np.array(labels, np.int64), i64), to(best, i64), axis=0, mode="clip")


def one_of_two(positive: Expr, labels: Sequence[int]) -> Expr:
    """The second label where a condition holds, otherwise the first; one per sample."""
    first, second = (const(label, i64) for label in labels)
    return op.reshape(op.where(positive, second, first), (shape(positive)[0],))
