"""Words: how dtypes and literals are written in LLVM's text, one value or several lanes at once.

In registers narrow floats are `float`: arithmetic is done in f32 and rounded after each operation,
as numpy does.  In memory they are their bits, and a bool is a byte.  No lanes (0): a single value.

>>> register(bf16), memory(bf16), literal(0.1, f32)
('float', 'i16', '0x3FB99999A0000000')
>>> register(f32, 8), suffix(f32, 8), literal(1, f32, 8)
('<8 x float>', 'v8f32', 'splat (float 0x3FF0000000000000)')
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import numpy as np

from plica.ir.type.dtype import DType, bf16, bool_, f32, f64

__all__ = ["bf16", "f32", "flag", "literal", "memory", "register", "suffix", "wide"]


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
        return wide("double" if of is f64 else "float", lanes)
    return wide("i1" if of is bool_ else f"i{of.bits}", lanes)


@lru_cache(maxsize=512)
def memory(of: DType, lanes: int = 0) -> str:
    """The LLVM type of an element in memory."""
    if of.is_float and not of.is_narrow:
        return register(of, lanes)
    return wide(f"i{8 * of.bytes}", lanes)


@lru_cache(maxsize=512)
def suffix(of: DType, lanes: int = 0) -> str:
    """How the names of LLVM's functions on such values end."""
    if of.is_float:
        kind = "f64" if of is f64 else "f32"
    else:
        kind = "i1" if of is bool_ else f"i{of.bits}"
    return f"v{lanes}{kind}" if lanes else kind


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
