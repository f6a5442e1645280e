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

from plica.ir.loop import scalar as sc
from plica.ir.op.record import widened


def float_modulo(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """Python's modulo of floats: the remainder of truncation, moved to the sign of `y`."""
    zero = sc.like(0, x)
    rest = sc.Intrinsic("fmod", (x, y))
    away = sc.Ne(sc.Lt(rest, zero), sc.Lt(y, zero))
    return sc.Select(
        sc.Eq(rest, zero),
        sc.Intrinsic("copysign", (zero, y)),
        sc.Select(away, sc.Add(rest, y), rest),
    )


def modulo(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """The remainder of division rounded down."""
    return widened(float_modulo)(x, y) if sc.dtype_of(x).is_float else sc.FloorMod(x, y)


def floor_quotient(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """Division rounded down."""
    return widened(float_floor_quotient)(x, y) if sc.dtype_of(x).is_float else sc.FloorDiv(x, y)


def float_floor_quotient(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """Division of floats rounded down as Python does it: exact where the quotient is."""
    zero, one = sc.like(0, x), sc.like(1, x)
    rest = sc.Intrinsic("fmod", (x, y))
    down = sc.And(sc.Ne(rest, zero), sc.Ne(sc.Lt(rest, zero), sc.Lt(y, zero)))
    cut = sc.Div(sc.Sub(x, rest), y)
    whole = sc.Select(down, sc.Sub(cut, one), cut)
    near: sc.Scalar = sc.Intrinsic("floor", (whole,))
    near = sc.Select(sc.Lt(sc.like(0.5, x), sc.Sub(whole, near)), sc.Add(near, one), near)
    return sc.Select(
        sc.Eq(y, zero),
        sc.Div(x, y),
        sc.Select(sc.Ne(whole, zero), near, sc.Intrinsic("copysign", (zero, sc.Div(x, y)))),
    )


def trunc_quotient(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """Division rounded towards zero."""
    dtype = sc.dtype_of(x)
    if dtype.is_float:
        return sc.Intrinsic("trunc", (sc.Div(x, y),))
    quotient = sc.FloorDiv(x, y)
    if dtype.kind == "uint":
        return quotient
    zero, one = sc.like(0, x), sc.like(1, x)
    inexact = sc.Ne(sc.FloorMod(x, y), zero)
    return sc.Select(
        sc.And(inexact, sc.Ne(sc.Lt(x, zero), sc.Lt(y, zero))), sc.Add(quotient, one), quotient
    )


def trunc_modulo(x: sc.Scalar, y: sc.Scalar) -> sc.Scalar:
    """The remainder of division rounded towards zero: it has the sign of `x`."""
    dtype = sc.dtype_of(x)
    if dtype.is_float:
        return sc.Intrinsic("fmod", (x, y))
    rest = sc.FloorMod(x, y)
    if dtype.kind == "uint":
        return rest
    zero = sc.like(0, x)
    return sc.Select(
        sc.And(sc.Ne(rest, zero), sc.Ne(sc.Lt(x, zero), sc.Lt(y, zero))), sc.Sub(rest, y), rest
    )
