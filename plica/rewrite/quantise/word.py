"""Words of the tables: holes for bytes and their scales, and numbers of constants.

>>> from plica.ir.graph.expression import const
>>> one(const([[0.5]], f32)), one(const([1.0, 2.0], f32))
(0.5, None)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.ir.contract import approx
from plica.ir.graph.expression import Expr, const
from plica.ir.op.elementwise import cast, subtract
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import TensorType, f32, i8, i32, type_of, u8
from plica.rewrite.closed import closed, value_of
from plica.rewrite.pattern import hole, holes
from plica.rewrite.quantise.fixed import Array

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
    found = value_of(of)
    return None if found is None or not np.all(np.isfinite(found)) else found


def one(of: Expr) -> float | None:
    """The number that a closed term has everywhere."""
    found = number(of)
    return None if found is None or found.size != 1 else float(found.reshape(())[()])


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
    bottom, top = (int(each) for each in tensor(of).dtype.bounds)
    return max(int(np.max(np.abs(top - zero.astype(np.int64)))), int(np.max(zero - bottom)))


def restored(of: Expr, scale: Array) -> Expr:
    """Sums of 32 bits as the numbers they stand for."""
    return dequantise(of, const(scale, f32), const(0, i32))


def reshaped(of: Expr) -> Expr:
    """A constant of one number as a scalar."""
    found = value_of(of)
    assert found is not None
    return const(found.reshape(()), tensor(of).dtype)


def spoken(name: str) -> str:
    """The name of an operator as a part of the name of a rule."""
    return name.removeprefix("nn.").replace("_", "-")
