"""Rounded quotients: numbers that one scale divides are multiplied by its inverse, to the same bit.

    for i in vectorized(n):                      inverse = 1 / s
        y[i] = u8(min(max(               -->     least, most = (0 - z) * s, (255 - z) * s
            round(x[i] / s) + z, 0), 255))       if s is neither small nor large, and z is whole:
                                                     for i in vectorized(n):
                                                         near = min(max(x[i], least), most)
                                                         t = near * inverse
                                                         q = fma(fma(t, -s, near), inverse, t)
                                                         y[i] = u8(i32(round(q))) + u8(z)
                                                 else: …   as it was

Division is slower than multiplication. With a correctly rounded inverse, `t` corrected by its own
remainder is the rounded quotient (Markstein), barring overflow and subnormals; so the scale is
checked once. Values are clamped to the bounds first: no infinity enters, and quotients are so small
that adding a larger float leaves them as integers in its low bits (`small` tells the emitter so).

Law: the kernel means the same, to the bit.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from attrs import frozen

from plica.analysis.statement import mapped, with_body
from plica.codegen.emit.contraction import MAX_EXACT_BITS, SMALL, held_within
from plica.core import Name, free_vars, fresh, post_order
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.type import DType, f32, i32, known

LEAST_SCALE: Final = 2.0**-90
"""From here to its inverse a scale times what it divides has no rest that is subnormal: rests are
multiples of 2^-138, where the quotient is not so small that it is rounded to 0 anyway."""

SHORTEST: Final = 64  # a row of fewer elements is not worth an inverse and a branch


@frozen
class RoundedQuotient:
    """`cast(min(max(round(value / scale) + zero, low), high))`; no zero is None."""

    value: sc.Scalar
    scale: sc.Scalar
    zero: sc.Scalar | None
    low: int
    high: int
    into: DType


def rounded_quotient(node: sc.Scalar) -> RoundedQuotient | None:
    """The rounding of an f32 quotient to a small integer that a term computes, or None."""
    if (
        not isinstance(node, sc.Cast)
        or not node.dtype.is_integer
        or node.dtype.bits > MAX_EXACT_BITS
    ):
        return None
    if (bounds := held_within(node)) is None or bounds[1] > bounds[2]:
        return None
    value, low, high = bounds
    zero: sc.Scalar | None = None
    match value:
        case sc.Add(sc.Intrinsic("round") as moved, added):
            value, zero = moved, added
        case sc.Add(added, sc.Intrinsic("round") as moved):
            value, zero = moved, added
        case _:
            pass
    match value:
        case sc.Intrinsic("round", (sc.Div(above, scale),)) if sc.dtype_of(above) is f32:
            return RoundedQuotient(above, scale, zero, low, high, node.dtype)
        case _:
            return None


def by_inverse(kernel: st.Kernel) -> st.Kernel:
    """The kernel with the quotients of its vectors multiplied where they can be."""
    nodes = list(post_order(kernel.body))
    casts = [node for node in nodes if isinstance(node, sc.Cast)]
    if not any(rounded_quotient(cast) is not None for cast in casts):
        return kernel
    used = {node.name for node in nodes if isinstance(node, sc.ScalarVar)}
    used |= {dim.name for dim in kernel.dims}
    return with_body(kernel, mapped(kernel.body, lambda stmt: _changed(stmt, used)))


def _changed(stmt: st.Stmt, used: set[Name]) -> st.Stmt:
    match stmt:
        case st.For(var, extent, "vectorized", st.Store() as store, notes):
            found = rounded_quotient(store.value)
        case _:
            return stmt
    if found is None or (known(extent) or 0) < SHORTEST:
        return stmt
    if not all(_is_one(scalar, var, store.buffer) for scalar in (found.scale, found.zero)):
        return stmt

    def named(name: str, of: DType) -> sc.ScalarVar:
        used.add(new := fresh(Name(name), used))
        return sc.ScalarVar(new, of)

    scale, zero, inverse, negative, least, most, nil = (
        named(name, f32)
        for name in ("scale", "zero", "inverse", "negative", "least", "most", "nil")
    )
    moved, near = named("moved", found.into), found.value
    if found.low:  # else nan is the least number soon
        near = sc.Select(sc.Eq(near, near), near, nil)
    near = sc.Select(sc.Lt(least, near), near, least)
    near = sc.Select(sc.Lt(near, most), near, most)
    times = near * inverse
    rest = sc.Intrinsic("fma", (times, negative, near))
    quotient = sc.Intrinsic("fma", (rest, inverse, times))
    whole = sc.Cast(sc.Cast(sc.Intrinsic("round", (quotient,)), i32), found.into)
    inside = st.Store(store.buffer, store.indices, whole + moved)
    row = st.For(var, extent, "vectorized", inside, (*notes, (SMALL, True)))
    tests: list[sc.Scalar] = [sc.Le(sc.like(LEAST_SCALE, scale), scale)]
    tests += [sc.Le(scale, sc.like(1 / LEAST_SCALE, scale))]
    tests += [sc.Eq(zero, sc.Intrinsic("round", (zero,)))]
    tests += [sc.Le(sc.like(found.low, zero), zero), sc.Le(zero, sc.like(found.high, zero))]
    statement: st.Stmt = st.Branch(reduce(sc.And, tests), row, stmt)
    for each, value in (
        (moved, sc.Cast(zero, found.into)),
        (nil, (0.0 - zero) * scale),
        (most, (float(found.high) - zero) * scale),
        (least, (float(found.low) - zero) * scale),
        (negative, -0.0 - scale),
        (inverse, 1.0 / scale),
        (zero, sc.Lit(0.0, f32) if found.zero is None else found.zero),
        (scale, found.scale),
    ):
        statement = st.Bind(each, value, statement)
    return statement


def _is_one(of: sc.Scalar | None, lane: sc.ScalarVar, written: sc.Buffer) -> bool:
    """Whether a term has one value for all lanes of a loop."""
    if of is None:
        return True
    if lane in free_vars(of) or sc.dtype_of(of) is not f32:
        return False
    loads = [each for each in post_order(of) if isinstance(each, sc.Load | sc.Reduce)]
    return not any(isinstance(load, sc.Reduce) or load.buffer is written for load in loads)
