"""Rows of tensors made from numbers; what torch leaves unset is zero."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import numpy as np

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, constant
from plica.frontend.word import dtype, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, f64, i64


def _filled(node: TorchNode, value: object) -> Expr:
    of = node.dtype()
    if isinstance(value, Scalar | Expr):
        return op.broadcast_to(constant(node, value, of), node.shape())
    return op.full(shape=node.shape(), value=_number(node, value, of), dtype=of)


def _number(node: TorchNode, value: object, of: DType) -> bool | int | float:
    """A fill value converted as torch does, by truncation."""
    if isinstance(value, int | float) and isfinite(value) and not of.is_float:
        value = value != 0 if of.name == "bool" else int(value)
    found: bool | int | float = constant(node, value, of).numpy().item()  # type: ignore[attr-defined]  # a constant
    return found


def _full(node: TorchNode) -> Expr:
    node.argument("size"), node.has("dtype")
    return _filled(node, _filling(node))


def _full_like(node: TorchNode) -> Expr:
    node.has("dtype")
    of, value = node.dtype(), _filling(node)
    if isinstance(value, Scalar | Expr):
        return op.broadcast_to(constant(node, value, of), shape(node.x()))
    return op.full_like(node.x(), value=_number(node, value, of), dtype=of)


def _filling(node: TorchNode) -> object:
    """The number that is everywhere; it may be a size, or computed from sizes."""
    found = node.argument("fill_value")
    return found if isinstance(found, Scalar | Expr) else node.number("fill_value")


def _constantly(value: int) -> Row:
    def row(node: TorchNode) -> Expr:
        for name in ("self", "size", "dtype", "stride", "physical_layout"):
            node.has(name)
        return _filled(node, value)

    return row


def _copy(node: TorchNode) -> Expr:
    return op.broadcast_to(casted(node.x("src"), dtype(node.x())), shape(node.x()))


def _to_copy(node: TorchNode) -> Expr:
    node.has("dtype")
    return casted(node.x(), node.dtype())


def _arange(node: TorchNode) -> Expr:
    of = node.dtype()
    node.has("dtype"), node.has("end")
    start = node.argument("start") if node.has("start") else 0
    step = node.argument("step") if node.has("step") else 1
    (count,) = node.shape()
    if not of.is_float:  # torch cuts the fractions off before it counts
        step, start = (int(each) if isinstance(each, float) else each for each in (step, start))
    numbers = isinstance(start, int | float) and isinstance(step, int | float)
    if isinstance(count, int) and numbers:
        return const((start + step * np.arange(count)).astype(of.numpy), of)
    inner = f64 if of.is_float else i64
    scaled = op.iota(shape=(count,), dtype=inner) * constant(node, step, inner)
    return casted(scaled + constant(node, start, inner), of)


def _corner(indices: Callable[..., Any]) -> Row:
    """The rows and columns of a triangle of a matrix."""

    def row(node: TorchNode) -> Expr:
        rows, columns, offset = (node.integer(name) for name in ("row", "col", "offset"))
        node.has("dtype")
        return const(np.stack(indices(rows, offset, columns)).astype(node.dtype().numpy))

    return row


def _scalar_tensor(node: TorchNode) -> Expr:
    node.has("dtype")
    return constant(node, node.argument("s"), node.dtype())


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "full.default":             _full,
    "full_like.default":        _full_like,
    "empty.memory_format":      _constantly(0),
    "empty_permuted.default":   _constantly(0),
    "empty_strided.default":    _constantly(0),
    "new_empty_strided.default": _constantly(0),
    "copy.default":             _copy,
    "_to_copy.default":         _to_copy,
    "arange.start_step":        _arange,
    "scalar_tensor.default":    _scalar_tensor,
    "tril_indices.default":     _corner(np.tril_indices),
    "triu_indices.default":     _corner(np.triu_indices),
}
# fmt: on
