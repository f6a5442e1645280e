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
from typing import Final

import numpy as np

from plica.ir.loop.scalar import Intrinsic, Lit, Lt, Mul, Scalar, Select
from plica.ir.type import f32
from plica.schedule.default.gpu.attention_chain import LEAST

LARGEST: Final = float(np.finfo(np.float32).max)


def power(of: Scalar) -> Scalar:
    """A power of two, which machines have an instruction for."""
    return Intrinsic("exp2", (of,))


def scale_of(most: Scalar, unit: float) -> Scalar:
    """The factor of a row's scores: the unit, or one if that would be infinite.

    A masked key may have the lowest finite number instead of minus infinity, and all keys of a row
    may be masked. Numbers that large are equal or further apart than any exponential can
    distinguish: which of them it is does not matter.
    """
    if unit <= 1:
        return Lit(unit, f32)
    far = Lt(Lit(LARGEST / unit * (1 - 1e-6), f32), Intrinsic("abs", (most,)))
    return Select(far, Lit(1.0, f32), Lit(unit, f32))


def factored(of: Scalar) -> tuple[float, Scalar]:
    """Scores in units for powers of two: a positive factor, and the remaining term."""
    whole, unit = of, math.log2(math.e)
    conditions: list[Scalar] = []
    while isinstance(of, Select) and of.orelse is LEAST:
        conditions.append(of.condition)
        of = of.then
    if not isinstance(of, Mul) or not isinstance(of.right, Lit) or not of.right.value > 0:
        return unit, whole
    scale, of = float(of.right.value) * unit, of.left
    for condition in reversed(conditions):
        of = Select(condition, of, LEAST)
    return scale, of
