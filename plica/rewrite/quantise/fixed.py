"""Factors in fixed point: a real number as `multiplier / 2**shift`, near enough for 32 bits.

>>> fixed_point(np.array(0.75))
(array(1610612736, dtype=int32), array(31, dtype=int32))
>>> shift_of(np.array([0.5, 0.125])), shift_of(np.array(0.3))
(array([1, 3], dtype=int32), None)

The relative error of a factor is at most 2**-31, so a product with a number of 32 bits is off by
less than one before it is rounded, and by less than 2**-7 where the result is a byte.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

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
    shifts = [shift_of(np.array(each)) for each in factors]
    whole = [1 if each >= 1 and np.frexp(each)[0] == 0.5 else None for each in factors]
    known = [
        0 if one else (None if n is None else int(n)) for one, n in zip(whole, shifts, strict=True)
    ]
    exact = [each for each in known if each is not None]
    if len(exact) == len(factors):
        most = max(exact)
        several = tuple(int(each * 2.0**most) for each in factors)
        if max(several) < 1 << NARROW_BITS:
            return several, most
    top = max(factors)
    shift = NARROW_BITS - int(np.frexp(top)[1])
    if not 0 <= shift < PRECISION:
        return None
    return tuple(round(each * 2.0**shift) for each in factors), shift
