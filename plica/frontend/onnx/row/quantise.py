"""Rows of quantised operators: integers that stand for numbers by a scale and a zero point."""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.sign import never_negative
from plica.frontend.onnx.row.window import convolved
from plica.frontend.onnx.row.word import (
    Row,
    along,
    as_scalar,
    axis_in,
    dtype,
    into_storage,
    is_one,
    like,
    rank,
    shape,
    to,
)
from plica.frontend.onnx.storage import dtype_of
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32, i32, u8


def beside(node: OnnxNode, what: Expr, x: Expr, axis: int) -> Expr:
    """A scale or a zero point as it broadcasts against x: one, one for each place of an axis,
    or one for each block of an axis."""
    if is_one(what):
        return as_scalar(what)
    if rank(what) == 1:
        return along(what, axis_in(node, axis, rank(x)), rank(x))
    block = node.integer("block_size", 0)
    at = axis_in(node, axis, rank(x))
    parts, whole = known(shape(what)[at]), known(shape(x)[at])
    if block < 1 or rank(what) != rank(x) or parts is None or whole != parts * block:
        found = f"{shape(what)} for {shape(x)} in blocks of {block}"
        node.unsupported("Scales must be one for each place or block of an axis.", None, found)
    return op.repeat(what, repeats=block, axis=at)


def quantised(x: Expr, scale: Expr, zero: Expr | None, into: DType) -> Expr:
    """The integers nearest to x / scale + zero."""
    moved = op.round(x / scale)
    if zero is not None:
        moved = moved + to(zero, dtype(moved))
    low, high = into.bounds
    return op.cast(op.clip(moved, min=float(low), max=float(high)), into)


def restored(x: Expr, scale: Expr, zero: Expr | None) -> Expr:
    """The numbers that integers stand for."""
    if zero is None:
        return to(x, dtype(scale)) * scale
    if dtype(x).is_float:
        return (to(x, dtype(scale)) - to(zero, dtype(scale))) * scale
    return to(to(x, i32) - to(zero, i32), dtype(scale)) * scale


def _quantise(node: OnnxNode) -> Expr:
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    into = u8 if zero is None else dtype(zero)
    if node.integer("output_dtype", 0):
        into = dtype_of(node.integer("output_dtype", 0), node.place)
    if node.integer("precision", 0) not in (0, 1):
        node.unsupported("QuantizeLinear divides in f32.", "precision 0 or 1")
    axis = node.integer("axis", 1)
    node.ignore("block_size")
    if not into.is_integer and not into.is_storage:
        node.unsupported("QuantizeLinear gives integers or 8-bit floats.", None, str(into))
    wide = to(x, f32)
    step = beside(node, to(scale, f32), x, axis)
    if into.is_float:
        moved = wide / step
        if zero is not None:
            moved = moved + to(beside(node, zero, x, axis), f32)
        return into_storage(node, moved, into)
    node.ignore("saturate")
    return quantised(wide, step, None if zero is None else beside(node, zero, x, axis), into)


def _dequantise(node: OnnxNode) -> Expr:
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    axis = node.integer("axis", 1)
    node.ignore("block_size")
    said = node.integer("output_dtype", 0)
    wanted = dtype_of(said, node.place) if said else dtype(scale)
    step = beside(node, to(scale, f32), x, axis)
    return to(restored(x, step, None if zero is None else beside(node, zero, x, axis)), wanted)


def dynamic(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Quantised bytes of x, with the scale and zero point of its range."""
    zero, one = like(0.0, x), like(1.0, x)
    if any(known(size) == 0 for size in shape(x)):
        return op.full(shape=shape(x), value=0, dtype=u8), one, const(0, u8)
    sure = all(known(size) for size in shape(x))  # otherwise there may be nothing, which is 0
    least, greatest = (op.min, op.max) if sure else (op.infimum, op.supremum)
    # Of nan both extremes are nan, so that the scale tells of it alone.
    low = zero if never_negative(x) else op.minimum(least(x), zero)
    high = op.maximum(greatest(x), zero)
    scale = (high - low) / like(255.0, x)
    # Any scale says that all are 0; onnxruntime's is 1.
    scale = op.where(op.equal(scale, zero), one, scale)
    point = op.clip(op.round(zero - low / scale), min=0.0, max=255.0)
    y = op.clip(op.round(x / scale) + point, min=0.0, max=255.0)
    return op.cast(y, u8), scale, op.cast(point, u8)


def _moved(node: OnnxNode, at: int, zero_at: int, rows: bool = False) -> Expr:
    """An input less its zero point, in i32."""
    x, zero = to(node.x(at), i32), node.maybe(zero_at)
    if zero is None:
        return x
    zero = to(zero, i32)
    if is_one(zero):
        return x - as_scalar(zero)
    if rank(zero) == 1:
        return x - along(zero, rank(x) - (2 if rows else 1), rank(x))
    return x - zero


def _matmul_integer(node: OnnxNode) -> Expr:
    return op.matmul(_moved(node, 0, 2, rows=True), _moved(node, 1, 3))


def _weight(node: OnnxNode, at: int, zero_at: int) -> Expr:
    weight, zero = to(node.x(at), i32), node.maybe(zero_at)
    if zero is None:
        return weight
    zero = to(zero, i32)
    return weight - (as_scalar(zero) if is_one(zero) else along(zero, 0, rank(weight)))


def _qlinear_matmul(node: OnnxNode) -> Expr:
    """a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    product = op.matmul(_moved(node, 0, 2, rows=True), _moved(node, 3, 5))
    a, b, y = (to(node.x(at), f32) for at in (1, 4, 6))
    a = as_scalar(a) if is_one(a) else (op.reshape(a, (*shape(a), 1)) if rank(a) == 1 else a)
    b = as_scalar(b) if is_one(b) else b
    if not is_one(y) or not is_one(node.x(7)):
        node.unsupported("QLinearMatMul gives numbers of one scale.", "one", str(node.type(6)))
    factor = a * b / as_scalar(y)
    return _requantised(to(product, f32) * factor, node.x(7))


def _qlinear_conv(node: OnnxNode) -> Expr:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias."""
    sums = convolved(node, _moved(node, 0, 2), _weight(node, 3, 5), 3)
    if (bias := node.maybe(8)) is not None:
        sums = sums + along(bias, 1, rank(sums))
    x, w, y = (to(node.x(at), f32) for at in (1, 4, 6))
    if not is_one(x) or not is_one(y) or not is_one(node.x(7)):
        node.unsupported("QLinearConv has one scale for images.", "one", str(node.type(1)))
    w = as_scalar(w) if is_one(w) else along(w, 1, rank(sums))
    factor = as_scalar(x) * w / as_scalar(y)
    return _requantised(to(sums, f32) * factor, node.x(7))


def _requantised(x: Expr, zero: Expr) -> Expr:
    into = dtype(zero)
    return quantised(x, const(1.0, f32), as_scalar(zero), into)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "QuantizeLinear":        _quantise,
    "DequantizeLinear":      _dequantise,
    "DynamicQuantizeLinear": lambda node: list(dynamic(node.x())),
    "MatMulInteger":         _matmul_integer,
    "ConvInteger":           lambda node: convolved(node, _moved(node, 0, 2), _weight(node, 1, 3)),
    "QLinearMatMul":         _qlinear_matmul,
    "QLinearConv":           _qlinear_conv,
}
# fmt: on
