"""Dtypes: the closed set of element types, and what each is.

    DType ::= bool | i8 .. i64 | u8 .. u64 | f16 | bf16 | f32 | f64

>>> f32.bits, f32.is_float, dtype("int8") is i8
(32, True, True)
"""

from __future__ import annotations

from typing import Any, Final, Literal

import ml_dtypes
import numpy as np
from attrs import frozen

from plica.core.diagnostic import ill_formed
from plica.core.term import Term

Kind = Literal["bool", "int", "uint", "float"]


@frozen(eq=False)
class DType(Term):
    """An element type; only the names below exist."""

    name: str

    @staticmethod
    def normal(name: str) -> tuple[str]:
        if name not in _FACTS:
            raise ill_formed(f"There is no dtype {name!r}; there are {', '.join(_FACTS)}.")
        return (name,)

    @property
    def kind(self) -> Kind:
        return _FACTS[self.name][0]

    @property
    def bits(self) -> int:
        return _FACTS[self.name][1]

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; a bool takes one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self.name]

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and greatest value of an integer or bool dtype."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind == "float":
            raise ValueError(f"{self.name} has no integer bounds.")
        return 0, (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


_FACTS: Final[dict[str, tuple[Kind, int]]] = {
    "bool": ("bool", 1),
    "i8": ("int", 8),
    "i16": ("int", 16),
    "i32": ("int", 32),
    "i64": ("int", 64),
    "u8": ("uint", 8),
    "u16": ("uint", 16),
    "u32": ("uint", 32),
    "u64": ("uint", 64),
    "f16": ("float", 16),
    "bf16": ("float", 16),
    "f32": ("float", 32),
    "f64": ("float", 64),
}

_NUMPY: Final[dict[str, np.dtype[Any]]] = {
    "bool": np.dtype(np.bool_),
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
}

bool_: Final = DType("bool")
i8, i16, i32, i64 = (DType(f"i{n}") for n in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{n}") for n in (8, 16, 32, 64))
f16, bf16, f32, f64 = (DType(n) for n in ("f16", "bf16", "f32", "f64"))
DTYPES: Final = tuple(DType(name) for name in _FACTS)

_BY_NUMPY: Final = {_NUMPY[d.name]: d for d in DTYPES}


def dtype(of: DType | str | np.dtype[Any] | type) -> DType:
    """The dtype meant by a Plica name, a numpy name or a numpy dtype."""
    if isinstance(of, DType):
        return of
    if isinstance(of, str) and of in _FACTS:
        return DType(of)
    found = _BY_NUMPY.get(np.dtype(of))
    if found is None:
        raise ValueError(f"Plica has no dtype for {of!r}; it has {', '.join(_FACTS)}.")
    return found
