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
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, f32, i8
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.frontend.word import along, as_scalar, dtype, in_f32, is_one, like, rank, shape, to


__all__ = [
    "Made", "Row", "along", "as_scalar", "axes_in", "axis_in", "direct", "dtype", "in_f32",
    "into_storage", "is_one", "like", "rank", "shape", "to",
]  # fmt: skip

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
    found = tuple(axis_in(node, axis, of) for axis in axes)
    if len(set(found)) != len(found):
        node.malformed("An axis is named twice.", "different axes", str(tuple(axes)))
    return found


def into_storage(node: OnnxNode, x: Expr, into: DType) -> Expr:
    """x in a storage dtype, cast as in the standard.

    Floats saturate at the format's maximum, infinities too, unless the node disables it; integers
    wrap around, also those from floats.
    """
    if not into.is_float:
        return op.cast(to(x, i8) if dtype(x).is_float else x, into)
    if not node.integer("saturate", 1):
        return op.cast(x, into)
    wide = x if dtype(x).is_float and not dtype(x).is_storage else to(x, f32)
    return op.cast(op.clip(wide, min=-into.greatest, max=into.greatest), into)
