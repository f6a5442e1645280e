"""Element types: the runtime properties of each, one row per type.

The compiler's table (`plica.ir.type.dtype`) builds on these rows and adds what only it asks.

>>> ELEMENTS["bf16"].numpy, ELEMENTS["bf16"].c, ELEMENTS["u8"].bytes
(dtype(bfloat16), 'uint16_t', 1)
>>> print(wrong_element("Input 'x'", "x", "f32", "float64"))
x: Input 'x' has the wrong element type. [input-dtype]
  expected: f32
  found: float64
  suggestion: Convert it: x.astype("float32").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from plica.runtime.error import Diagnostic, Place

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True)
class Element:
    """One element type.

    `name` is Plica's, in scripts and artefacts; `array` is numpy's, which is also torch's;
    `extended` marks types of the package `ml_dtypes`; `dlpack` is DLPack's type code, or None if
    DLPack packs the type differently.
    """

    name: str
    kind: Kind
    bits: int
    array: str
    dlpack: int | None
    extended: bool = False

    @cached_property
    def bytes(self) -> int:
        """Bytes per element in memory; types narrower than 8 bits take one."""
        return max(1, self.bits // 8)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and greatest value of an integer or bool type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind == "float":
            raise ValueError(f"{self.name} has no integer bounds.")
        return 0, (1 << self.bits) - 1

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The element type of arrays."""
        if not self.extended:
            return np.dtype(self.array)
        import ml_dtypes  # few models need it

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.array))
        return found

    @property
    def c(self) -> str:
        """C's type; floats that C has no type for are given by their bits."""
        if self.kind == "float" and self.bits >= 32:
            return "float" if self.bits == 32 else "double"
        return f"{'' if self.kind == 'int' else 'u'}int{8 * self.bytes}_t"


# fmt: off
ROWS: Final = (
    Element("bool", "bool",  1,  "bool",     6),
    Element("i8",   "int",   8,  "int8",     0),
    Element("i16",  "int",   16, "int16",    0),
    Element("i32",  "int",   32, "int32",    0),
    Element("i64",  "int",   64, "int64",    0),
    Element("u8",   "uint",  8,  "uint8",    1),
    Element("u16",  "uint",  16, "uint16",   1),
    Element("u32",  "uint",  32, "uint32",   1),
    Element("u64",  "uint",  64, "uint64",   1),
    Element("f16",  "float", 16, "float16",  2),
    Element("bf16", "float", 16, "bfloat16", 4, extended=True),
    Element("f32",  "float", 32, "float32",  2),
    Element("f64",  "float", 64, "float64",  2),
    Element("f8e4m3fn", "float", 8, "float8_e4m3fn", 10, extended=True),
    Element("f8e5m2",   "float", 8, "float8_e5m2",   12, extended=True),
    Element("i4",       "int",   4, "int4",          None, extended=True),
    Element("u4",       "uint",  4, "uint4",         None, extended=True),
    Element("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz", 11, extended=True),
    Element("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz", 13, extended=True),
    Element("f4e2m1fn",   "float", 4, "float4_e2m1fn",   None, extended=True),
    Element("u2",         "uint",  2, "uint2",           None, extended=True),
    Element("i2",         "int",   2, "int2",            None, extended=True),
)
# fmt: on
ELEMENTS: Final = {row.name: row for row in ROWS}  # the rows by name


def wrong_element(
    what: str, name: str, expected: str, found: str, hint: str | None = None
) -> Diagnostic:
    """The diagnostic for another element type: nothing is converted implicitly. The suggested
    conversion is numpy's unless another is given."""
    message = f"{what} has the wrong element type."
    if hint is None and (element := ELEMENTS.get(expected)) is not None:
        word = f"ml_dtypes.{element.array}" if element.extended else f'"{element.array}"'
        hint = f"Convert it: {name}.astype({word})."
    return Diagnostic("input-dtype", message, Place(node=name), expected, found, hint)
