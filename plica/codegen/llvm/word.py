"""Words: how dtypes and literals are written in LLVM's text.

In registers f16 and bf16 are `float`: arithmetic is done in f32 and rounded after each operation,
as numpy does.  In memory a bool is a byte, f16 and bf16 are two.

>>> register(bf16), memory(bf16), literal(0.1, f32)
('float', 'i16', '0x3FB99999A0000000')
"""

from __future__ import annotations

import math
import struct
from typing import Final

import numpy as np

from plica.ir.dtype import DType, bf16, bool_, f32, f64

__all__ = ["bf16", "f32", "is_narrow", "literal", "memory", "register"]

_FLOATS: Final = {"f16": "float", "bf16": "float", "f32": "float", "f64": "double"}


def register(of: DType) -> str:
    """The LLVM type of a value."""
    if of.is_float:
        return _FLOATS[of.name]
    return "i1" if of is bool_ else f"i{of.bits}"


def memory(of: DType) -> str:
    """The LLVM type of an element in memory."""
    if of.is_float:
        return "i16" if of.bits == 16 else _FLOATS[of.name]
    return f"i{max(8, of.bits)}"


def is_narrow(of: DType) -> bool:
    """Whether values are rounded after each operation: f16 and bf16."""
    return of.is_float and of.bits == 16


def literal(value: float, of: DType) -> str:
    """A constant, exactly: floats by their bits."""
    if not of.is_float:
        if of is bool_:
            return "true" if value else "false"
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value, of.numpy)) if of is not f64 else float(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    if math.isnan(rounded):
        bits = 0x7FF8000000000000
    return f"0x{bits:016X}"
