"""Words of the tables: holes for bytes and their scales, and numbers of constants.

>>> from plica.ir.graph.expression import const
>>> one(const([[0.5]], f32)), one(const([1.0, 2.0], f32))
(0.5, None)

Factors in fixed point: a real number as `multiplier / 2**shift`, near enough for 32 bits.

The relative error of a factor is at most 2**-31, so a product with a number of 32 bits is off by
less than one before it is rounded, and by less than 2**-7 where the result is a byte.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from plica.ir.contract import approx
from plica.ir.graph.expression import Expr, const
from plica.ir.op.elementwise import cast, subtract
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import TensorType, f32, i8, i32, type_of, u8
from plica.rewrite.closed import closed, value_of
from plica.rewrite.pattern import hole, holes

TINY: Final = float(np.finfo(np.float32).tiny)
SUM_LIMIT: Final = 1 << 30  # the limit of sums, so that a bias and a rounding half still fit
STEP: Final = approx(1 / 64)
"""One step of a byte, of a range of which half is used; see Note [Steps]."""

BYTES: Final = (i8, u8)
x, w = hole("x", dtypes=BYTES), hole("w", dtypes=BYTES)
sums = hole("sums", dtypes=i32)
f: Any = hole("f", dtypes=f32)
s, t, u, c = (closed(name, dtypes=f32) for name in "stuc")
z, y, o = (closed(name, dtypes=(i8, u8, i32)) for name in "zyo")
(rounding, low, high, least, most) = holes("rounding low high least most")

bytes_: Any = dequantise(x, s, z)
weight: Any = dequantise(w, t, y)
whole: Any = dequantise(sums, s, z)


def into(value: Any) -> Any:
    """A quantisation with any scale, zero point and bounds."""
    return quantise(value, u, o, rounding, low, high)


def number(of: Expr) -> Array | None:
    """The array of a closed term, with finite numbers."""
    array = value_of(of)
    return None if array is None or not np.all(np.isfinite(array)) else array


def one(of: Expr) -> float | None:
    """The number that a closed term has everywhere."""
    array = number(of)
    return None if array is None or array.size != 1 else float(array.reshape(())[()])


def tensor(of: Expr) -> TensorType:
    """The type of a tensor."""
    found = type_of(of)
    assert isinstance(found, TensorType)
    return found


def along(values: Array, axis: int, rank: int, after: int) -> Array | None:
    """Numbers along one axis of a weight, broadcast `after` a given number of axes from the end of
    the result; None if they vary along another axis."""
    shape = (1,) * (rank - values.ndim) + values.shape
    if values.size == 1:
        return values.reshape(())
    if values.ndim > rank or shape[axis] != values.size:
        return None
    return values.reshape((values.size, *([1] * after)))


def centred(of: Expr, zero: Array) -> Expr:
    """Integers less their zero point, in i32."""
    wide = cast(of, i32)
    return wide if not np.any(zero) else subtract(wide, const(zero, i32))


def reach(of: Expr, zero: Array) -> int:
    """How far integers are from their zero point, at most."""
    bottom, top = (int(bound) for bound in tensor(of).dtype.bounds)
    return max(int(np.max(np.abs(top - zero.astype(np.int64)))), int(np.max(zero - bottom)))


def restored(of: Expr, scale: Array) -> Expr:
    """Sums of 32 bits as the numbers they stand for."""
    return dequantise(of, const(scale, f32), const(0, i32))


def reshaped(of: Expr) -> Expr:
    """A constant of one number as a scalar."""
    array = value_of(of)
    assert array is not None
    return const(array.reshape(()), tensor(of).dtype)


def spoken(name: str) -> str:
    """The name of an operator as a part of the name of a rule."""
    return name.removeprefix("nn.").replace("_", "-")


# --- factors in fixed point --------------------------------------------------------------------


Array: TypeAlias = np.ndarray[Any, Any]

PRECISION: Final = 31  # bits of a multiplier
FARTHEST: Final = 62  # the farthest shift that `fixed_multiply` knows
NARROW_BITS: Final = 21
"""Bits of a multiplier of bytes, so that two products and a half fit into 32."""


def fixed_point(factor: Array) -> tuple[Array, Array] | None:
    """The multipliers and shifts of positive factors, or None if one is too large."""
    wide = np.asarray(factor, np.float64)
    if not np.all(np.isfinite(wide) & (wide > 0)):
        return None
    part, exponent = np.frexp(wide)
    multiplier = np.rint(part * 2.0**PRECISION).astype(np.int64)
    full = multiplier == 1 << PRECISION  # a part next to 1 was rounded to it
    multiplier = np.where(full, multiplier >> 1, multiplier)
    shift = PRECISION - (exponent.astype(np.int64) + full)
    if np.any(shift < 0):
        return None
    over = np.maximum(shift - FARTHEST, 0)
    multiplier = np.rint(np.ldexp(multiplier.astype(np.float64), -over)).astype(np.int64)
    return np.asarray(multiplier, np.int32), np.asarray(shift - over, np.int32)


def shift_of(factor: Array) -> Array | None:
    """n if every factor is 2**-n, 0 <= n < 31; otherwise None."""
    wide = np.asarray(factor, np.float64)
    if not np.all(np.isfinite(wide) & (wide > 0)):
        return None
    part, exponent = np.frexp(wide)
    shift = np.asarray(1 - exponent, np.int32)
    if np.all(part == 0.5) and np.all((shift >= 0) & (shift < PRECISION)):
        return shift
    return None


def common_shift(*factors: float) -> tuple[tuple[int, ...], int] | None:
    """Multipliers of bytes over one shift: `factor = multiplier / 2**shift`, nearly.

    >>> common_shift(0.5, 2.0), common_shift(1.5, 0.1)
    (((1, 4), 1), ((1572864, 104858), 20))
    """
    shifts = [shift_of(np.array(factor)) for factor in factors]
    whole = [1 if factor >= 1 and np.frexp(factor)[0] == 0.5 else None for factor in factors]
    known = [
        0 if one else (None if n is None else int(n)) for one, n in zip(whole, shifts, strict=True)
    ]
    exact = [each for each in known if each is not None]
    if len(exact) == len(factors):
        most = max(exact)
        several = tuple(int(factor * 2.0**most) for factor in factors)
        if max(several) < 1 << NARROW_BITS:
            return several, most
    top = max(factors)
    shift = NARROW_BITS - int(np.frexp(top)[1])
    if not 0 <= shift < PRECISION:
        return None
    return tuple(round(factor * 2.0**shift) for factor in factors), shift
