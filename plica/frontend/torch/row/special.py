"""Rows of special functions, which are computed in f64 whatever the type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.frontend.special_function import SPECIAL
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, operands
from plica.ir.graph.expression import Expr
from plica.ir.type.dtype import f64


def _in_f64(function: Callable[[Expr], Expr]) -> Row:
    def row(node: TorchNode) -> Expr:
        (x,) = operands(node, "self", kind="INT_TO_FLOAT")
        return casted(function(casted(x, f64)), node.dtype())

    return row


TABLE: Final[dict[str, Row]] = {
    f"{name}.default": _in_f64(function) for name, function in SPECIAL.items()
}
