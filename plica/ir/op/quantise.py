"""Quantisation: numbers as integers with a scale and a zero point, products in fixed point.

    quantise(x, scale, zero)      round(x / scale) + zero, within the bounds of the zero's dtype
    dequantise(q, scale, zero)    (q - zero) * scale
    fixed_multiply(x, m, n)       round(x * m / 2**n) in whole numbers, exact but for the rounding

Scale and zero point broadcast: one for all, or one per channel as (c, 1, 1). Rounding is to
nearest; ties go to `even`, `up`, or `away` from zero.

>>> from plica.ir.type.term import tensor
>>> x, scale, zero = tensor((2, 3), "f32"), tensor((), "f32"), tensor((), "i8")
>>> attrs = {"rounding": "up", "low": None, "high": None}
>>> str(quantise.relation(attrs, x, scale, zero).dtype)
'i8'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.graph.operator import Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, choice, integer, optional
from plica.ir.op.elementwise import call, negated
from plica.ir.op.record import as_dtype, primitive, read
from plica.ir.op.relation import broadcast, literal, refuse
from plica.ir.type import DTYPES, DType, TensorType, f32, f64, i32, i64

SCALES: Final = frozenset({f32, f64})
STORED: Final = frozenset(dtype for dtype in DTYPES if dtype.is_integer and dtype.bits <= i32.bits)
MAX_SHIFT: Final = 62
"""The maximum right shift of a product of 32-bit numbers: the rounding half still fits."""

_ROUNDING = attribute("rounding", choice("even", "up", "away"), "even")


def _nearest_up(x: sc.Scalar) -> sc.Scalar:
    below = call("floor", x)
    return sc.Select(sc.Le(sc.like(0.5, x), sc.Sub(x, below)), sc.Add(below, sc.like(1, x)), below)


def _nearest_away(x: sc.Scalar) -> sc.Scalar:
    return sc.Select(sc.Lt(x, sc.like(0, x)), negated(_nearest_up(negated(x))), _nearest_up(x))


_NEAREST: Final[dict[str, Callable[[sc.Scalar], sc.Scalar]]] = {
    "even": lambda x: call("round", x),
    "up": _nearest_up,
    "away": _nearest_away,
}


def _whole(name: str, of: TensorType, what: str) -> None:
    if of.dtype not in STORED:
        expected = "integers of at most 32 bits"
        refuse("dtype-conflict", f"{name} takes {what} of integers.", expected, str(of.dtype))


def _bounds(attrs: Values, into: DType) -> tuple[int, int]:
    low, high = (int(bound) for bound in into.bounds)
    low = low if attrs["low"] is None else int(literal("quantise", attrs["low"], into).value)
    high = high if attrs["high"] is None else int(literal("quantise", attrs["high"], into).value)
    if low > high:
        refuse("bad-attribute", "quantise: low is not above high.", f"{low} or more", str(high))
    return low, high


def _quantise_rule(attrs: Values, x: TensorType, scale: TensorType, zero: TensorType) -> TensorType:
    _whole("quantise", zero, "a zero point")
    _bounds(attrs, zero.dtype)
    shape = broadcast("quantise", (x.shape, scale.shape, zero.shape))
    return TensorType(shape, zero.dtype)


def _quantise_body(
    attrs: Values, out: TensorType, x: sc.Buffer, scale: sc.Buffer, zero: sc.Buffer
) -> Compute:
    low, high = _bounds(attrs, out.dtype)
    nearest = _NEAREST[attrs["rounding"]]

    def element(*i: sc.Scalar) -> sc.Scalar:
        steps = nearest(read(x, i, out.shape) / read(scale, i, out.shape))
        moved = sc.Add(steps, as_dtype(read(zero, i, out.shape), x.dtype))
        held = sc.Min(sc.Max(moved, sc.Lit(float(low), x.dtype)), sc.Lit(float(high), x.dtype))
        return as_dtype(held, out.dtype)

    return compute((x, scale, zero), out.shape, element)


def _dequantise_rule(
    attrs: Values, x: TensorType, scale: TensorType, zero: TensorType
) -> TensorType:
    _whole("dequantise", x, "a tensor")
    _whole("dequantise", zero, "a zero point")
    if scale.dtype not in SCALES:
        refuse("dtype-conflict", "dequantise takes scales of f32 or f64.", None, str(scale.dtype))
    shape = broadcast("dequantise", (x.shape, scale.shape, zero.shape))
    return TensorType(shape, scale.dtype)


def _dequantise_body(
    attrs: Values, out: TensorType, x: sc.Buffer, scale: sc.Buffer, zero: sc.Buffer
) -> Compute:
    def element(*i: sc.Scalar) -> sc.Scalar:
        value, point = (as_dtype(read(buffer, i, out.shape), i32) for buffer in (x, zero))
        return sc.Mul(as_dtype(sc.Sub(value, point), out.dtype), read(scale, i, out.shape))

    return compute((x, scale, zero), out.shape, element)


def _is_odd(x: sc.Scalar) -> sc.Scalar:
    return sc.Eq(sc.BitAnd(x, sc.like(1, x)), sc.like(1, x))


def shifted(product: sc.Scalar, by: sc.Scalar, rounding: str) -> sc.Scalar:
    """`product / 2**by` of i64, rounded to the nearest; `by` is 0 … 62."""
    one, zero = sc.like(1, product), sc.like(0, product)
    half = sc.ShiftRight(sc.ShiftLeft(one, by), one)
    up = sc.ShiftRight(sc.Add(product, half), by)
    if rounding == "up":
        return up
    if rounding == "away":
        down = sc.Sub(zero, sc.ShiftRight(sc.Add(sc.Sub(zero, product), half), by))
        return sc.Select(sc.Lt(product, zero), down, up)
    rest = sc.BitAnd(sc.Add(product, half), sc.Sub(sc.ShiftLeft(one, by), one))
    is_tie = sc.And(sc.Eq(rest, zero), sc.Lt(zero, by))
    return sc.Select(sc.And(is_tie, _is_odd(up)), sc.Sub(up, one), up)


def _fixed_rule(attrs: Values, *types: TensorType) -> TensorType:
    return TensorType(broadcast("fixed_multiply", (tensor.shape for tensor in types)), i32)


def _fixed_body(
    attrs: Values, out: TensorType, x: sc.Buffer, multiplier: sc.Buffer, shift: sc.Buffer
) -> Compute:
    def element(*i: sc.Scalar) -> sc.Scalar:
        value, factor, by = (
            as_dtype(read(buffer, i, out.shape), i64) for buffer in (x, multiplier, shift)
        )
        held = sc.Min(sc.Max(by, sc.Lit(0, i64)), sc.Lit(MAX_SHIFT, i64))
        moved = shifted(sc.Mul(value, factor), held, attrs["rounding"])
        low, high = i32.bounds
        return as_dtype(sc.Min(sc.Max(moved, sc.Lit(low, i64)), sc.Lit(high, i64)), i32)

    return compute((x, multiplier, shift), out.shape, element)


quantise = primitive(
    "quantise", ("x", "scale", "zero"), _quantise_rule, _quantise_body,
    "Round x / scale + zero to the zero's dtype, clipped to low and high.",
    attributes=(
        _ROUNDING,
        attribute("low", optional(integer), None),
        attribute("high", optional(integer), None),
    ),
    admits=SCALES, like=(0, 1), aliases=("quantize",),
)  # fmt: skip
dequantise = primitive(
    "dequantise", ("x", "scale", "zero"), _dequantise_rule, _dequantise_body,
    "(x - zero) * scale: convert quantised integers to floats.", like=(), aliases=("dequantize",),
)  # fmt: skip
fixed_multiply = primitive(
    "fixed_multiply", ("x", "multiplier", "shift"), _fixed_rule, _fixed_body,
    "x * multiplier / 2^shift of i32, rounded to nearest; the shift is clamped to 0 to 62.",
    attributes=(_ROUNDING,), admits=frozenset({i32}),
)  # fmt: skip
