"""Words that rows are written with.

>>> from plica.ir.graph.expression import const
>>> like(2, const([1.0], "f32")).dtype
DType('f32')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.value import TensorValue
from plica.frontend.word import along, as_scalar, dtype, in_f32, is_one, like, rank, shape, to
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator

__all__ = [
    "Made",
    "Row",
    "along",
    "as_scalar",
    "axes_in",
    "axis_in",
    "direct",
    "dtype",
    "in_f32",
    "is_one",
    "like",
    "rank",
    "shape",
    "to",
]

Made: TypeAlias = Expr | TensorValue | Sequence[Expr | TensorValue]
Row: TypeAlias = Callable[[OnnxNode], Made]


def direct(record: Operator) -> Row:
    """The operator that has the same inputs and no attributes."""
    return lambda node: record(*(node.x(at) for at in range(len(record.inputs))))


def axis_in(node: OnnxNode, axis: int, of: int) -> int:
    """An axis counted from the front."""
    if not -of <= axis < of:
        node.malformed("There is no such axis.", f"from {-of} to {of - 1}", str(axis))
    return axis % of


def axes_in(node: OnnxNode, axes: Sequence[int], of: int) -> tuple[int, ...]:
    """Different axes counted from the front, in the order given."""
    found = tuple(axis_in(node, each, of) for each in axes)
    if len(set(found)) != len(found):
        node.malformed("An axis is named twice.", "different axes", str(tuple(axes)))
    return found
