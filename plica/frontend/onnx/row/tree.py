"""The rows of tree ensembles: forests and boosted trees, of three generations of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.ensemble import EnsembleTable, TreeNode, table_of, weights_in
from plica.frontend.onnx.row.repeat import repeated
from plica.frontend.onnx.row.score import (
    TRANSFORMS,
    best_label,
    labels_of,
    one_of_two,
    samples,
    transformed,
)
from plica.frontend.onnx.row.tree_file import nodes_by_id, nodes_by_place, reals_of
from plica.frontend.onnx.row.word import Row, dtype, like, shape, to
from plica.frontend.onnx.storage import Array
from plica.frontend.recurrence import MOST_STEPS
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type import f32, i32, known

AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order of their numbers in `TreeEnsemble`."""


def _leaves(node: OnnxNode, x: Expr, of: EnsembleTable) -> Expr:
    """The leaf of each tree for each sample: [samples, trees]."""
    samples_, width = shape(x)
    most = int(of.feature.max(initial=0))
    if (features := known(width)) is not None and most >= features:
        message = "The trees ask for a feature that samples do not have."
        node.malformed(message, f"below {features}", str(most))
    # A missing feature is detected at run time, if not before.
    mode = "raise" if features is None else "clip"

    def gathered(table: Array, at: Expr) -> Expr:
        return op.take(const(table), at, axis=0, mode="clip")

    def turn(at: Expr) -> Expr:
        value = op.take_along_axis(x, gathered(of.feature, at), axis=1, mode=mode)
        split = gathered(of.split, at)
        holds = value <= split
        if of.equal.any():
            same = op.equal(value, split)
            every = bool((of.equal | np.isnan(of.split)).all())
            holds = same if every else op.where(gathered(of.equal, at), same, holds)
        if of.missing.any():
            lost = op.logical_and(op.isnan(value), gathered(of.missing, at))
            holds = op.logical_or(holds, lost)
        return gathered(of.first, at) + to(holds, i32)

    trees = len(of.roots)
    at: Expr = op.broadcast_to(const(of.roots.reshape(1, trees)), (samples_, index(trees)))
    if of.depth <= MOST_STEPS:
        for _ in range(of.depth):
            at = turn(at)
    else:
        last, one = const(of.depth, i32), const(1, i32)
        _, at = repeated(
            node,
            [const(0, i32), at],
            lambda number, _: number < last,
            lambda number, at: [number + one, turn(at)],
        )
    return gathered(of.leaf, at)


def _scores(node: OnnxNode, x: Expr, of: EnsembleTable, how: str) -> Expr:
    """The scores of all targets: [samples, targets]."""
    if how not in AGGREGATES:
        node.malformed("There is no such aggregate_function.", ", ".join(AGGREGATES), how)
    given = op.take(const(of.weights), _leaves(node, x, of), axis=0, mode="clip")
    if how in ("SUM", "AVERAGE"):
        total = op.sum(given, axis=(1,))
        return total / like(len(of.roots), total) if how == "AVERAGE" else total
    if not of.dense:
        node.refused_for_good(f"Leaves without a weight for a target have no {how}.")
    return (op.min if how == "MIN" else op.max)(given, axis=(1,))


def _table(
    node: OnnxNode, x: Expr, nodes: Sequence[TreeNode], roots: Sequence[int], targets: int
) -> EnsembleTable:
    """The table of a file's nodes, in the floats of the samples."""
    named = {target for target, _ in weights_in(nodes)}
    if not named <= set(range(targets)):
        message = "A leaf gives a weight to a target that there is not."
        node.malformed(message, f"0 to {targets - 1}", str(sorted(named)))
    return table_of(node, nodes, roots, targets, dtype(x).numpy.type)


def _based(node: OnnxNode, scores: Expr, of: EnsembleTable) -> Expr:
    """Scores and what they begin with."""
    base = reals_of(node, "base_values")
    if not base:
        return scores
    if len(base) != of.weights.shape[1]:
        found = f"{len(base)} for {of.weights.shape[1]}"
        node.refused_for_good("There is a base value for each target.", "one each", found)
    if not of.always.all():
        node.refused_for_good("A base value is of a target that leaves may give no weight.")
    return scores + const(np.array(base, dtype(scores).numpy))


def _regressor(node: OnnxNode) -> Expr:
    targets = node.integer("n_targets")
    x = samples(node)
    of = _table(node, x, *nodes_by_id(node, "target"), targets)
    expr = _based(node, _scores(node, x, of, node.text("aggregate_function", "SUM")), of)
    return to(transformed(node, expr, node.text("post_transform", "NONE"), targets), f32)


def _classifier(node: OnnxNode) -> list[Expr]:
    labels, how = labels_of(node, "classlabels_int64s"), node.text("post_transform", "NONE")
    x = samples(node)
    nodes, roots = nodes_by_id(node, "class")
    entries = weights_in(nodes)
    ids = {target for target, _ in entries}
    if len(labels) == 2 and ids == {1}:
        message = "Two classes are told apart by one score for each leaf, or by one for each class."
        node.refused_for_good(message, "weights of class 0, or of both", "weights of class 1")
    if len(labels) == 2 and ids != {0, 1}:
        return _two_classes(node, x, _table(node, x, nodes, roots, 1), labels)
    of = _table(node, x, nodes, roots, len(labels))
    if not of.always.all() and not all(weight > 0 for _, weight in entries):
        node.refused_for_good(
            "A class that leaves give no weight is compared with weights below 0."
        )
    scores = _based(node, _scores(node, x, of, "SUM"), of)
    return [best_label(scores, labels), to(transformed(node, scores, how, len(labels)), f32)]


def _two_classes(node: OnnxNode, x: Expr, of: EnsembleTable, labels: Sequence[int]) -> list[Expr]:
    """Two classes by the score of the second: a probability where no weight is negative."""
    if (how := node.text("post_transform", "NONE")) not in ("NONE", "LOGISTIC"):
        message = "The one score of two classes is transformed by itself."
        node.refused_for_good(message, "NONE or LOGISTIC", how)
    score = _based(node, _scores(node, x, of, "SUM"), of)
    share = bool((of.weights >= 0).all())
    label = one_of_two(score > like(0.5 if share else 0, score), labels)
    against = -score
    if how == "LOGISTIC":
        pair = [op.nn.sigmoid(against), op.nn.sigmoid(score)]
    else:
        pair = [like(1, score) + against if share else against, score]
    return [label, to(op.concat(tuple(pair), axis=1), f32)]


def _ensemble(node: OnnxNode) -> Expr:
    """The third generation: nodes and leaves by their places in tensors."""
    targets, x = node.integer("n_targets"), samples(node)
    nodes, roots = nodes_by_place(node)
    of = _table(node, x, nodes, roots, targets)
    how, then = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    if not 0 <= how < len(AGGREGATES) or not 0 <= then < len(TRANSFORMS):
        node.malformed(
            "A function of TreeEnsemble has a number.", "0 to 3, 0 to 4", f"{how}, {then}"
        )
    expr = transformed(node, _scores(node, x, of, AGGREGATES[how]), TRANSFORMS[then], targets)
    return to(expr, dtype(node.x()))


TABLE: Final[dict[str, Row]] = {
    "TreeEnsembleClassifier": _classifier,
    "TreeEnsembleRegressor": _regressor,
    "TreeEnsemble": _ensemble,
}
