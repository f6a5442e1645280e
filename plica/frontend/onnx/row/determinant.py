"""The row of determinants."""

from __future__ import annotations

from functools import reduce
from typing import Final

from plica.frontend.elimination import LARGEST, pivots
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.type.dim import known


def _det(node: OnnxNode) -> Expr:
    x, n = node.x(), known(shape(node.x())[-1])
    if rank(x) < 2 or n is None or n != known(shape(x)[-2]) or not 0 < n <= LARGEST:
        node.unsupported("Det takes square matrices.", f"of 1 to {LARGEST}", str(node.type(0)))
    return op.reshape(reduce(op.multiply, pivots(x, n)), shape(x)[:-2])


TABLE: Final[dict[str, Row]] = {"Det": _det}
