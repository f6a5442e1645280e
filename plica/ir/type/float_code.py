"""Codes of narrow floats: the numbers by which an f32 is rounded to a format, and read back.

A code is sign, biased exponent and fraction, as in all IEEE 754 formats. Emitters generate
conversions from these numbers alone, so a new format needs no code:

    pack      normal:     the fraction's last bits go, half a step is added, ties to even
              subnormal:  `magic` is added, of which the steps are the format's: the sum counts them
    unpack    normal:     the exponent is rebiased; subnormal: steps times `step`

>>> from plica.ir.type.dtype import f16
>>> code = float_code(f16)
>>> code.cut, hex(code.greatest), hex(code.overflow), hex(code.nan), code.step == 2.0**-24
(13, '0x7bff', '0x7c00', '0x7e00', True)
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import assert_never

from attrs import frozen

from plica.core import CompilerBug
from plica.ir.type.dtype import DType


@frozen
class FloatCode:
    """The numbers of a format; those of `rebias`, `normal` and `magic_bits` are bits of f32."""

    bits: int
    fraction: int  # bits of the fraction
    cut: int  # how many of f32's it lacks
    rebias: int  # what an exponent of f32 is more by, in place
    normal: int  # the least normal number
    magic: float  # an f32 whose steps are those of subnormal numbers
    magic_bits: int
    step: float  # the least positive number
    greatest: int  # the last code of a finite number
    overflow: int  # the code of what is greater
    nan: int
    has_minus_zero: bool  # where 0 has no sign, its code is that of nan

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)


@lru_cache(maxsize=16)
def float_code(of: DType) -> FloatCode:
    """The numbers of a narrow float's format."""
    if not of.is_narrow:
        raise CompilerBug(f"{of} is no float that is computed in f32.")
    row = of.row
    fraction, bias, minus_zero = row.digits - 1, row.bias, 1 << (of.bits - 1)
    infinity = ((1 << row.exponent) - 1) << fraction
    last = infinity | ((1 << fraction) - 1)
    match row.special:
        case "ieee":
            greatest, overflow, nan = infinity - 1, infinity, infinity | (1 << (fraction - 1))
        case "last":
            greatest, overflow, nan = last - 1, last, last
        case "minus-zero":
            greatest, overflow, nan = last, minus_zero, minus_zero
        case "none":
            greatest, overflow, nan = last, last, minus_zero
        case _:
            assert_never(row.special)
    step = 2.0 ** (1 - bias - fraction)
    magic = step * 2.0**23
    return FloatCode(
        bits=of.bits,
        fraction=fraction,
        cut=23 - fraction,
        rebias=(127 - bias) << 23,
        normal=_bits(2.0 ** (1 - bias)),
        magic=magic,
        magic_bits=_bits(magic),
        step=step,
        greatest=greatest,
        overflow=overflow,
        nan=nan,
        has_minus_zero=row.special != "minus-zero",
    )


def _bits(of: float) -> int:
    """The bits of an f32."""
    found: int = struct.unpack("<I", struct.pack("<f", of))[0]
    return found
