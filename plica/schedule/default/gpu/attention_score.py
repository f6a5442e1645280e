"""Scores as exponents of two, which machines have an instruction for.

>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (4,), f32)
>>> scale, what = factored(x[0] * Lit(0.5, f32))
>>> round(scale, 4), what is x[0]
(0.7213, True)
"""

from __future__ import annotations

import math

from plica.ir.loop.scalar import Intrinsic, Lit, Mul, Scalar, Select
from plica.schedule.default.gpu.attention_chain import LEAST


def power(of: Scalar) -> Scalar:
    """A power of two: what machines have an instruction for."""
    return Intrinsic("exp2", (of,))


def factored(of: Scalar) -> tuple[float, Scalar]:
    """Scores in units of which two to the power is taken: a positive factor, and what it is of."""
    whole, unit = of, math.log2(math.e)
    conditions: list[Scalar] = []
    while isinstance(of, Select) and of.orelse is LEAST:
        conditions.append(of.condition)
        of = of.then
    if not isinstance(of, Mul) or not isinstance(of.right, Lit) or not of.right.value > 0:
        return unit, whole
    scale, of = float(of.right.value) * unit, of.left
    for each in reversed(conditions):
        of = Select(each, of, LEAST)
    return scale, of
