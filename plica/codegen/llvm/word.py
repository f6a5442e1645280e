"""Words: how dtypes and literals are written in LLVM's text, one value or several lanes at once.

In registers f16 and bf16 are `float`: arithmetic is done in f32 and rounded after each operation,
as numpy does.  In memory a bool is a byte, f16 and bf16 are two.  No lanes (0) is a single value.

>>> register(bf16), memory(bf16), literal(0.1, f32)
('float', 'i16', '0x3FB99999A0000000')
>>> register(f32, 8), suffix(f32, 8), literal(1, f32, 8)
('<8 x float>', 'v8f32', 'splat (float 0x3FF0000000000000)')
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Final

import numpy as np

from plica.ir.dtype import DType, bf16, bool_, f32, f64

__all__ = ["bf16", "f32", "flag", "is_narrow", "literal", "memory", "register", "suffix", "wide"]

_FLOATS: Final = {"f16": "float", "bf16": "float", "f32": "float", "f64": "double"}


def wide(kind: str, lanes: int) -> str:
    """The type of so many lanes of a kind."""
    return f"<{lanes} x {kind}>" if lanes else kind


def flag(lanes: int = 0) -> str:
    """The type of a condition."""
    return wide("i1", lanes)


@lru_cache(maxsize=512)
def register(of: DType, lanes: int = 0) -> str:
    """The LLVM type of a value."""
    if of.is_float:
        return wide(_FLOATS[of.name], lanes)
    return wide("i1" if of is bool_ else f"i{of.bits}", lanes)


@lru_cache(maxsize=512)
def memory(of: DType, lanes: int = 0) -> str:
    """The LLVM type of an element in memory."""
    if of.is_float:
        return wide("i16" if of.bits == 16 else _FLOATS[of.name], lanes)
    return wide(f"i{max(8, of.bits)}", lanes)


@lru_cache(maxsize=512)
def suffix(of: DType, lanes: int = 0) -> str:
    """How the names of LLVM's functions on such values end."""
    if of.is_float:
        kind = "f64" if of is f64 else "f32"
    else:
        kind = "i1" if of is bool_ else f"i{of.bits}"
    return f"v{lanes}{kind}" if lanes else kind


def is_narrow(of: DType) -> bool:
    """Whether values are rounded after each operation: f16 and bf16."""
    return of.is_float and of.bits == 16


def literal(value: float, of: DType, lanes: int = 0) -> str:
    """A constant, exactly: floats by their bits."""
    text = _literal(value, of)
    return f"splat ({register(of)} {text})" if lanes else text


def _literal(value: float, of: DType) -> str:
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
