"""Rows about bits: the same bits as another type, of floats by exact arithmetic."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, dtype, to
from plica.frontend.onnx.storage import dtype_of
from plica.ir.graph.expression import Const, Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, bool_, f64, i64

LOW: Final = const(np.iinfo(np.int64).min, i64)


def _bit_cast(node: OnnxNode) -> Expr:
    x, wanted = node.x(), dtype_of(node.integer("to"), node.place)
    own = dtype(x)
    if wanted.bytes != own.bytes:
        expected = f"a type of {own.bytes} bytes"
        node.malformed("BitCast keeps the size of elements.", expected, str(wanted))
    if own is wanted:
        return x
    if wanted is bool_ or own.is_storage or wanted.is_storage:
        node.unsupported("The bits of this type are not looked at.", "numbers", str(wanted))
    whole = _bits(x, own) if own.is_float else x
    return _float(to(whole, i64), wanted) if wanted.is_float else op.cast(whole, wanted)


def _power(exponent: int) -> Const:
    return const(float(2.0**exponent), f64)


def _scaled(x: Expr, exponent: int) -> Expr:
    """x times a power of two that may be no float itself."""
    half = exponent // 2
    return x * _power(half) * _power(exponent - half)


def _format(of: DType) -> tuple[int, int, int]:
    """How many bits the fraction has, the bias, and the code of infinity."""
    fraction = of.row.digits - 1
    exponent = 8 * of.bytes - 1 - fraction
    return fraction, (1 << (exponent - 1)) - 1, ((1 << exponent) - 1) << fraction


def _bits(x: Expr, of: DType) -> Expr:
    """The bits of floats, as i64."""
    fraction, bias, infinity = _format(of)
    wide = to(x, f64)
    size = op.absolute(wide)
    usual = op.where(op.logical_or(op.isnan(wide), op.isinf(wide)), const(1.0, f64), size)
    low = usual < const(1.0, f64)
    rest = op.where(low, _scaled(usual, bias - 1), usual)
    code = op.where(low, const(1, i64), const(bias, i64))
    for step in reversed(range(bias.bit_length())):
        big = rest >= _power(1 << step)
        rest = op.where(big, rest * _power(-(1 << step)), rest)
        code = op.where(big, code + const(1 << step, i64), code)
    part = op.cast((rest - const(1.0, f64)) * _power(fraction), i64)
    normal = code * const(1 << fraction, i64) + part
    tiny = usual < _power(1 - bias)
    few = op.cast(_scaled(op.where(tiny, usual, const(0.0, f64)), bias - 1 + fraction), i64)
    expr = op.where(tiny, few, normal)
    expr = op.where(op.isinf(wide), const(infinity, i64), expr)
    expr = op.where(op.isnan(wide), const(infinity | 1 << (fraction - 1), i64), expr)
    top = LOW if of.bytes == 8 else const(1 << (8 * of.bytes - 1), i64)
    return op.where(op.signbit(wide), expr + top, expr)


def _float(bits: Expr, of: DType) -> Expr:
    """The floats that have these bits."""
    fraction, bias, infinity = _format(of)
    if of.bytes == 8:
        minus = bits < const(0, i64)
        code = op.where(minus, bits - LOW, bits)
    else:
        whole = bits % const(1 << 8 * of.bytes, i64)
        top = const(1 << (8 * of.bytes - 1), i64)
        minus = whole >= top
        code = op.where(minus, whole - top, whole)
    one = const(1 << fraction, i64)
    exponent, part = code // one, op.cast(code % one, f64)
    away = exponent - const(bias, i64)
    up, left = (away >= const(0, i64), op.where(away < const(0, i64), -away, away))
    expr = part * _power(-fraction) + const(1.0, f64)
    for step in range(bias.bit_length()):
        bit = op.equal(left // const(1 << step, i64) % const(2, i64), const(1, i64))
        by = op.where(up, _power(1 << step), _power(-(1 << step)))
        expr = op.where(bit, expr * by, expr)
    expr = op.where(exponent < const(1, i64), _scaled(part, 1 - bias - fraction), expr)
    top_code = const(infinity, i64)
    expr = op.where(op.equal(code, top_code), const(np.inf, f64), expr)
    expr = op.where(top_code < code, const(np.nan, f64), expr)
    return to(op.where(minus, -expr, expr), of)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "BitCast": _bit_cast,
}
# fmt: on
