"""Words of CUDA C++: how dtypes, literals and names are written.

    dtype    in a register    in memory
    bool     bool             unsigned char
    i8       signed char      signed char          i16 short, i32 int, i64 long long; u8 … likewise
    f16      float            unsigned short       computed in f32 and rounded, as all narrow floats
    f32      float            float

>>> literal(0.1, f32), literal(float("-inf"), f32), literal(-1, i64)
('0.1f', '__int_as_float(0xff800000)', '-1LL')
>>> names = Names()
>>> names.of(Name("sum", 2)), names.of(Name("for")), names.of(Name("sum", 2))
('sum_2', 'for_', 'sum_2')
"""

from __future__ import annotations

import re
import struct
from math import isfinite
from typing import Final

import numpy as np

from plica.core.name import Name
from plica.ir.dtype import DType, bool_, f32, f64, i64

__all__ = ["Names", "f32", "i64", "in_memory", "in_register", "literal"]

_WHOLE: Final = {1: "char", 2: "short", 4: "int", 8: "long long"}
"""Integers by their bytes."""

_ENDS: Final = {"i64": "LL", "u64": "ULL", "u32": "U"}

_WORDS: Final = """
    alignas alignof and asm auto bitand bitor blockDim blockIdx bool break case catch char class
    compl concept const const_cast constexpr continue decltype default delete do double
    dynamic_cast else enum explicit export extern false float for friend goto gridDim if inline
    int long mutable namespace new noexcept not nullptr operator or private protected public
    register reinterpret_cast requires return short signed sizeof static static_cast struct switch
    template this thread threadIdx throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t warpSize while xor min max abs fabs fmod sqrt floor ceil rint
    trunc copysign pow exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asinh acosh
    atanh asin acos atan atan2 erf signbit shared_memory
"""

RESERVED: Final = frozenset(_WORDS.split())
"""Words of the language, and names of functions that are called."""


def in_register(of: DType) -> str:
    """The type of a value."""
    if of.is_float:
        return "double" if of is f64 else "float"
    return "bool" if of is bool_ else _whole(of.kind == "int", of.bytes)


def in_memory(of: DType) -> str:
    """The type of an element of a buffer."""
    return _whole(False, of.bytes) if of.is_coded or of is bool_ else in_register(of)


def _whole(signed: bool, size: int) -> str:
    """The integer type of so many bytes; a plain char may have a sign or none."""
    word = _WHOLE[size]
    return ("signed char" if size == 1 else word) if signed else f"unsigned {word}"


def literal(value: bool | int | float, of: DType) -> str:
    """A value as it is written; what no decimal says is given by its bits."""
    if of is bool_:
        return "true" if value else "false"
    if not of.is_float:
        low = of.bounds[0]
        if value == low and low < 0 and of.bits >= 32:  # its size is no value of the type
            return f"({literal(low + 1, of)} - 1)"
        return f"{int(value)}{_ENDS.get(of.name, '')}"
    if of is f64:
        bits = int.from_bytes(struct.pack("<d", value), "little")
        return repr(float(value)) if isfinite(value) else f"__longlong_as_double({bits:#018x}LL)"
    single = np.float32(value)
    if np.isfinite(single):
        return f"{single!s}f"
    return f"__int_as_float({int(single.view(np.uint32)):#010x})"


class Names:
    """Identifiers for names, each its own."""

    def __init__(self) -> None:
        self._given: dict[object, str] = {}
        self._used: set[str] = set(RESERVED)

    def of(self, name: Name, key: object = None) -> str:
        """The identifier of what has a name; `key` tells apart things of the same name."""
        found = self._given.get(key if key is not None else name)
        if found is None:
            hint = re.sub(r"\W", "_", str(name), flags=re.ASCII)
            found = self.fresh(f"_{hint}" if hint[:1].isdigit() else hint or "v")
            self._given[key if key is not None else name] = found
        return found

    def fresh(self, like: str) -> str:
        """An identifier that nothing has yet."""
        found, count = like, 0
        while found in self._used:
            count += 1
            found = f"{like}_" if count == 1 else f"{like}_{count}"
        self._used.add(found)
        return found
