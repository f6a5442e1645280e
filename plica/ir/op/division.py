"""Division of scalars with a whole quotient: rounded down or towards zero, and what remains.

Of floats as Python does it; of integers by zero the quotient is 0.

>>> from plica.ir.type.dtype import f32, i32
>>> from plica.ir.loop.scalar import Lit
>>> type(modulo(Lit(7, i32), Lit(2, i32))).__name__
'FloorMod'
>>> type(trunc_quotient(Lit(7.0, f32), Lit(2.0, f32))).__name__
'Intrinsic'
"""

from __future__ import annotations

from plica.ir.loop.scalar import (
    Add,
    And,
    Div,
    Eq,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Lt,
    Ne,
    Scalar,
    Select,
    Sub,
    dtype_of,
    like,
)
from plica.ir.op.record import widened


def float_modulo(x: Scalar, y: Scalar) -> Scalar:
    """Python's modulo of floats: the remainder of truncation, moved to the sign of `y`."""
    zero = like(0, x)
    rest = Intrinsic("fmod", (x, y))
    away = Ne(Lt(rest, zero), Lt(y, zero))
    return Select(
        Eq(rest, zero), Intrinsic("copysign", (zero, y)), Select(away, Add(rest, y), rest)
    )


def modulo(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of division rounded down."""
    return widened(float_modulo)(x, y) if dtype_of(x).is_float else FloorMod(x, y)


def floor_quotient(x: Scalar, y: Scalar) -> Scalar:
    """Division rounded down."""
    return widened(float_floor_quotient)(x, y) if dtype_of(x).is_float else FloorDiv(x, y)


def float_floor_quotient(x: Scalar, y: Scalar) -> Scalar:
    """Division of floats rounded down as Python does it: exact where the quotient is."""
    zero, one = like(0, x), like(1, x)
    rest = Intrinsic("fmod", (x, y))
    down = And(Ne(rest, zero), Ne(Lt(rest, zero), Lt(y, zero)))
    cut = Div(Sub(x, rest), y)
    whole = Select(down, Sub(cut, one), cut)
    near: Scalar = Intrinsic("floor", (whole,))
    near = Select(Lt(like(0.5, x), Sub(whole, near)), Add(near, one), near)
    return Select(
        Eq(y, zero),
        Div(x, y),
        Select(Ne(whole, zero), near, Intrinsic("copysign", (zero, Div(x, y)))),
    )


def trunc_quotient(x: Scalar, y: Scalar) -> Scalar:
    """Division rounded towards zero."""
    dtype = dtype_of(x)
    if dtype.is_float:
        return Intrinsic("trunc", (Div(x, y),))
    quotient = FloorDiv(x, y)
    if dtype.kind == "uint":
        return quotient
    zero, one = like(0, x), like(1, x)
    inexact = Ne(FloorMod(x, y), zero)
    return Select(And(inexact, Ne(Lt(x, zero), Lt(y, zero))), Add(quotient, one), quotient)


def trunc_modulo(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of division rounded towards zero: it has the sign of `x`."""
    dtype = dtype_of(x)
    if dtype.is_float:
        return Intrinsic("fmod", (x, y))
    rest = FloorMod(x, y)
    if dtype.kind == "uint":
        return rest
    zero = like(0, x)
    return Select(And(Ne(rest, zero), Ne(Lt(x, zero), Lt(y, zero))), Sub(rest, y), rest)
