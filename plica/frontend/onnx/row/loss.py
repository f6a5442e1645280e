"""Rows of losses; weights, and a class that does not count, may be left out."""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Made, Row, dtype, shape
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op.namespace import op
from plica.ir.type.dtype import i64


def _loss(node: OnnxNode, of: Operator) -> Expr:
    x, target, weight = node.x(0), node.x(1), node.maybe(2)
    if weight is None:
        weight = op.ones(shape(x)[1:2], dtype(x))
    ignored = node.integer("ignore_index", i64.bounds[0])  # no class has that number
    how = node.text("reduction", "mean")
    if how not in ("mean", "sum", "none"):
        node.malformed("There is no such reduction.", "mean, sum or none", repr(how))
    return of(x, target, weight, reduction=how, ignore_index=ignored)


def _softmax_cross_entropy(node: OnnxNode) -> Made:
    return [_loss(node, op.nn.cross_entropy), op.nn.log_softmax(node.x(0), axis=1)]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "NegativeLogLikelihoodLoss": lambda node: _loss(node, op.nn.nll_loss),
    "SoftmaxCrossEntropyLoss":   _softmax_cross_entropy,
}
# fmt: on
