"""Changes of scale: where numbers that were restored become bytes again.

(a - z) * s / u + o   in whole numbers: a product and a shift, or a shift, then bounds
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.ir.graph.expression import Apply, Const, Expr, const
from plica.ir.op.elementwise import add, cast, clip, multiply
from plica.ir.op.join import concat
from plica.ir.op.quantise import fixed_multiply, quantise
from plica.ir.type import DType, f32, i8, i32
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.match import PatternMatch
from plica.rewrite.quantise import word
from plica.rewrite.quantise.form import integer_layer
from plica.rewrite.quantise.word import PRECISION, Array, common_shift, fixed_point, shift_of


def bounds(m: PatternMatch) -> tuple[int, int]:
    """The least and the greatest integer that a `quantise` gives."""
    bottom, top = (int(bound) for bound in word.tensor(m.o).dtype.bounds)
    return (bottom if m.low is None else m.low), (top if m.high is None else m.high)


MAX_ADDENDS: Final = 8  # the maximum number of byte addends in one operation
FRACTION_BITS: Final = 8  # the number of fractional bits kept of added constants


def behind_relu(m: PatternMatch) -> Expr | None:
    """Numbers below zero are integers below the zero point."""
    zero, scale = word.one(m.o), word.number(m.u)
    if zero is None or scale is None or np.any(scale <= 0):
        return None
    bottom, top = bounds(m)
    return quantise(m.f, m.u, m.o, m.rounding, min(max(bottom, int(zero)), top), m.high)


def behind_clip(m: PatternMatch) -> Expr | None:
    """Bounds of numbers are bounds of integers."""
    scale, zero = word.one(m.u), word.one(m.o)
    if scale is None or zero is None or scale <= 0:
        return None
    bottom, top = bounds(m)
    given = [m.least, m.most]
    if any(each is not None and not np.isfinite(each) for each in given):
        return None
    if None not in given and m.least > m.most:
        return None
    ends: list[int] = []
    for each, end in zip(given, (bottom, top), strict=True):
        if each is None:
            ends.append(end)
            continue
        step = quantise(
            const(each, f32), word.reshaped(m.u), word.reshaped(m.o), m.rounding, m.low, m.high
        )
        if (array := value_of(step)) is None:
            return None
        ends.append(int(array[()]))
    return quantise(m.f, m.u, m.o, m.rounding, ends[0], ends[1])


def rescaled(m: PatternMatch) -> Expr | None:
    """One change of scale in the place of two: sums, or bytes, become bytes."""
    has_sums = "sums" in m.filling
    data: Expr = m.sums if has_sums else m.x
    parts = [word.number(each) for each in (m.s, m.z, m.u, m.o)]
    scale, zero, after, point = parts
    if scale is None or zero is None or after is None or point is None:
        return None
    if after.size != 1 or point.size != 1 or zero.size != 1:
        return None
    factor = scale.astype(np.float64) / after.reshape(()).astype(np.float64)
    dtype, (bottom, top) = word.tensor(m.o).dtype, bounds(m)
    ends = int(point.reshape(())[()])
    same = not has_sums and word.tensor(data).dtype is dtype
    if same and np.all(factor == 1) and int(zero.reshape(())[()]) == ends:
        return narrowed(data, dtype, bottom, top)
    if has_sums and np.any(zero):
        return None
    inside = data if has_sums else word.centred(data, zero.reshape(()))
    return requantised(inside, factor, ends, dtype, (bottom, top), m.rounding)


def narrowed(data: Expr, dtype: DType, bottom: int, top: int) -> Expr:
    """Integers within bounds; themselves where these are those of their dtype."""
    lowest, highest = dtype.bounds
    return data if (bottom, top) == (lowest, highest) else clip(data, min=bottom, max=top)


def requantised(  # noqa: PLR0917  # all that a change of scale is
    of: Expr, factor: Array, zero: int, dtype: DType, ends: tuple[int, int], rounding: str
) -> Expr | None:
    """`of * factor + zero` of i32 within bounds: a shift where that is all, else a product."""
    bottom, top = ends
    shift = shift_of(factor)
    if shift is not None and (rounding == "up" or not np.any(shift)):
        moved = (np.left_shift(1, shift) >> 1) + np.left_shift(np.int64(zero), shift)
        if np.all(np.abs(moved) < word.SUM_LIMIT):
            return shifted(of, moved.astype(np.int64), shift, dtype, ends)
    if (fixed := fixed_point(factor)) is None:
        return None
    multiplier, by = (const(array, i32) for array in fixed)
    product = fixed_multiply(of, multiplier, by, rounding=rounding)
    # Clipping precedes the zero point: adding it to a maximum would wrap around.
    held = clip(product, min=bottom - zero, max=top - zero)
    return cast(add(held, const(zero, i32)) if zero else held, dtype)


def shifted(
    of: Expr, moved: Array, shift: Array, dtype: DType, ends: tuple[int, int]
) -> Expr | None:
    """The form of `plica.rewrite.quantise.form`: the half and the zero point go into the bias."""
    inner, bias = of, moved
    if isinstance(of, Apply) and of.op == "add" and isinstance(of.args[1], Const):
        inner, bias = of.args[0], of.args[1].numpy().astype(np.int64) + moved
        if np.any(np.abs(bias) >= 2 * word.SUM_LIMIT):
            inner, bias = of, moved
    made = integer_layer(inner, bias if np.any(bias) else None, shift, *ends)
    assert isinstance(made, Apply)
    return made if dtype is i8 else cast(made.args[0], dtype)


def summed(m: PatternMatch) -> Expr | None:
    """A sum of bytes of several scales: products with whole numbers, and one shift for all."""
    after, end = word.one(m.u), word.one(m.o)
    leaves = addends(m.f)
    if after is None or end is None or after <= 0 or leaves is None:
        return None
    parts, constants = leaves
    scales = [word.one(part.args[1]) for part in parts]
    zeros = [word.one(part.args[2]) for part in parts]
    if any(scale is None or scale <= 0 for scale in scales) or None in zeros:
        return None
    if (found := common_shift(*[(scale or 0.0) / after for scale in scales])) is None:
        return None
    factors, shift = found
    points = [np.array(int(each or 0)) for each in zeros]
    far = sum(a * word.reach(e.args[0], z) for a, e, z in zip(factors, parts, points, strict=True))
    biases = [constant.astype(np.float64) / after for constant in constants]
    far += sum(int(np.ceil(np.max(np.abs(biase), initial=0) * 2.0**shift)) + 1 for biase in biases)
    # A constant is no whole number of steps: with room to spare, it is rounded to parts of them.
    finer = min(
        FRACTION_BITS, PRECISION - 1 - shift, word.SUM_LIMIT.bit_length() - 1 - far.bit_length()
    )
    if finer < 0:
        return None
    finer = finer if biases else 0
    shift += finer
    total: Expr | None = None
    for part, zero, factor in zip(parts, points, factors, strict=True):
        term = scaled(word.centred(part.args[0], zero), factor << finer)
        total = term if total is None else add(total, term)
    for bias in biases:
        assert total is not None
        total = add(total, const(np.rint(bias * 2.0**shift).astype(np.int32)))
    if total is None or word.tensor(total).shape != word.tensor(m.f).shape:
        return None
    by = np.array(2.0**-shift)
    return requantised(total, by, int(end), word.tensor(m.o).dtype, bounds(m), m.rounding)


def addends(of: Expr) -> tuple[list[Apply], list[Array]] | None:
    """The addends: dequantised bytes and constants; None for other terms.

    >>> from plica.ir.graph.expression import const
    >>> addends(const(1.0, f32)) is None
    True
    """
    parts: list[Apply] = []
    constants: list[Array] = []
    stack = [of]
    while stack:
        node = stack.pop()
        if is_closed(node):
            if (values := word.number(node)) is None:
                return None
            constants.append(values)
        elif not isinstance(node, Apply) or len(parts) + len(stack) > MAX_ADDENDS:
            return None
        elif node.op == "add":
            stack.extend(reversed(node.args))
        elif node.op == "dequantise" and word.tensor(node.args[0]).dtype in word.BYTES:
            parts.append(node)
        else:
            return None
    is_sum = isinstance(of, Apply) and of.op == "add"
    return (parts, constants) if is_sum and parts else None


def scaled(of: Expr, by: int) -> Expr:
    """A product with a whole number; itself where that is one."""
    return of if by == 1 else multiply(of, const(by, i32))


def joined(m: PatternMatch) -> Expr | None:
    """Parts that are joined are quantised apart."""
    if word.one(m.u) is None or word.one(m.o) is None:
        return None
    whole_ = m.f
    if not isinstance(whole_, Apply) or whole_.op != "concat":
        return None
    if not all(isinstance(arg, Apply) and arg.op == "dequantise" for arg in whole_.args):
        return None
    scale, zero = word.reshaped(m.u), word.reshaped(m.o)
    parts = [quantise(arg, scale, zero, m.rounding, m.low, m.high) for arg in whole_.args]
    return concat(tuple(parts), **dict(whole_.attrs))
