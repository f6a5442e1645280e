"""The dialect LLVM: how dtypes, literals, operators and memory are written, for any lanes.

    dtype    in a register    in memory
    bool     i1               i8
    i8, u8   i8               i8                   i4 and u4 are i4 in a register, and so on
    f16      float            i16                  computed in f32 and rounded, as all narrow floats
    f32      float            float

Its text has registers for expressions and labels for braces: the rows of the folds that write
statements are its own (`plica.codegen.llvm.statement`).  No lanes (0): a single value.

>>> register(bf16), memory(bf16), literal(0.1, f32)
('float', 'i16', '0x3FB99999A0000000')
>>> register(f32, 8), literal(1, f32, 8)
('<8 x float>', 'splat (float 0x3FF0000000000000)')
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Final

import numpy as np

from plica.codegen.emit.dialect import Dialect
from plica.codegen.llvm.scalar import SPECIALS, by_word, loaded, stored
from plica.codegen.llvm.writer import LlvmPlace
from plica.ir.type import DTYPES, DType, bf16, f32, f64

__all__ = ["LLVM", "bf16", "f32", "literal", "memory", "register"]

_TYPES: Final = {
    **{dtype.name: f"i{dtype.bits}" for dtype in DTYPES if dtype.is_integer},
    "bool": "i1",
    "f32": "float", "f64": "double",
}  # fmt: skip


def _decimal(value: int, of: DType) -> str:
    return str(value)


def _bits(value: float, of: DType) -> str:
    """A float by its bits as a double: exactly."""
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value, of.numpy)) if of is not f64 else float(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    if math.isnan(rounded):
        bits = 0x7FF8000000000000
    return f"0x{bits:016X}"


LLVM: Final[Dialect[LlvmPlace]] = Dialect(
    "llvm",
    _TYPES,
    {"bool": "i8"},
    lanes="<{lanes} x {type}>",
    splat="splat ({type} {text})",
    integer=_decimal,
    real=_bits,
    written=by_word,
    specials=SPECIALS,
    allocation="{name} = alloca [{count} x {type}], align 64",
    stored=stored,
    loaded=loaded,
    variable="{name} = alloca {type}, align 64",
    loop="phi i64 [ {first}, %{before} ], [ {next}, %{after} ]",
    failure="store atomic i8 1, ptr {flag} monotonic, align 1",
    inside="icmp ult {type} {at}, {count}",
)

register: Final = lru_cache(maxsize=512)(LLVM.register)
memory: Final = lru_cache(maxsize=512)(LLVM.memory)
literal: Final = LLVM.literal
