"""Dtypes: the closed set of element types, and all that is known of each, one row a type.

    DType ::= bool | i8 .. i64 | u8 .. u64 | f16 | bf16 | f32 | f64
            | f8e4m3fn | f8e5m2 | f8e4m3fnuz | f8e5m2fnuz | f4e2m1fn | i4 | u4 | i2 | u2

The properties used by deployed models are in `plica.runtime.element`; the row here adds those for
the compiler. To add a type, add a row to both, and a name below.

>>> f32.bits, f32.is_float, dtype("int8") is i8
(32, True, True)
>>> f16.row.digits, f16.greatest, bf16.is_narrow, f64.is_narrow
(11, 65504.0, True, False)
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen

from plica.core import Term, ill_formed
from plica.runtime.element import ELEMENTS, Kind

WRITTEN = "ir.dtype"  # the path that its terms are written down under

Special = Literal["ieee", "last", "minus-zero", "none"]
"""The codes of a float that are not numbers: those of the last exponent (infinity, NaN), the very
last code (NaN), the code of -0 (NaN, and 0 has no sign), or none (NaN becomes -0, and overflow
saturates)."""


@frozen
class DTypeRow:
    """The compiler's properties of a dtype: its ONNX number and name and, for a float, its format.

    `onnx_field` is the field of a stored tensor that holds its numbers if they are not raw bytes. A
    float has `digits` significant bits, including the leading one, and `exponent` exponent bits;
    `special` names its codes that are not numbers. With `by_way_of_f32`, values are rounded to f32
    first, as in ml_dtypes. `is_storage` means that arithmetic needs a cast first.
    """

    name: str
    onnx: int
    onnx_name: str
    onnx_field: str = "int32_data"
    digits: int = 0
    exponent: int = 0
    special: Special = "ieee"
    by_way_of_f32: bool = False
    is_storage: bool = False

    @property
    def has_infinity(self) -> bool:
        """Whether a float has codes of infinities."""
        return self.special == "ieee"

    @property
    def bias(self) -> int:
        """The exponent bias of a float; one more if NaN uses the code of -0."""
        return (1 << (self.exponent - 1)) - (self.special != "minus-zero")


# fmt: off
_ROWS: Final[dict[str, DTypeRow]] = {dtype_row.name: dtype_row for dtype_row in (
    DTypeRow("bool", 9,  "bool"),
    DTypeRow("i8",   3,  "int8"),
    DTypeRow("i16",  5,  "int16"),
    DTypeRow("i32",  6,  "int32"),
    DTypeRow("i64",  7,  "int64",    "int64_data"),
    DTypeRow("u8",   2,  "uint8"),
    DTypeRow("u16",  4,  "uint16"),
    DTypeRow("u32",  12, "uint32",   "uint64_data"),
    DTypeRow("u64",  13, "uint64",   "uint64_data"),
    DTypeRow("f16",  10, "float16",  digits=11, exponent=5),
    DTypeRow("bf16", 16, "bfloat16", digits=8,  exponent=8, by_way_of_f32=True),
    DTypeRow("f32",  1,  "float",    "float_data",  digits=24, exponent=8),
    DTypeRow("f64",  11, "double",   "double_data", digits=53, exponent=11),
    DTypeRow("f8e4m3fn", 17, "float8e4m3fn", digits=4, exponent=4, special="last",
        by_way_of_f32=True, is_storage=True),
    DTypeRow("f8e5m2",   19, "float8e5m2",   digits=3, exponent=5,
        by_way_of_f32=True, is_storage=True),
    DTypeRow("i4",       22, "int4",  is_storage=True),
    DTypeRow("u4",       21, "uint4", is_storage=True),
    DTypeRow("f8e4m3fnuz", 18, "float8e4m3fnuz", digits=4, exponent=4, special="minus-zero",
        by_way_of_f32=True, is_storage=True),
    DTypeRow("f8e5m2fnuz", 20, "float8e5m2fnuz", digits=3, exponent=5, special="minus-zero",
        by_way_of_f32=True, is_storage=True),
    DTypeRow("f4e2m1fn",   23, "float4e2m1",     digits=2, exponent=2, special="none",
        by_way_of_f32=True, is_storage=True),
    DTypeRow("u2",         25, "uint2", is_storage=True),
    DTypeRow("i2",         26, "int2",  is_storage=True),
)}
# fmt: on


@frozen(eq=False)
class DType(Term):
    """An element type; only the names above exist."""

    name: str

    @staticmethod
    def normal(name: str) -> tuple[str]:
        if name not in _ROWS:
            raise ill_formed(f"There is no dtype {name!r}; there are {', '.join(_ROWS)}.")
        return (name,)

    @property
    def row(self) -> DTypeRow:
        """The compiler's properties of the dtype."""
        return _ROWS[self.name]

    @property
    def kind(self) -> Kind:
        return ELEMENTS[self.name].kind

    @property
    def bits(self) -> int:
        return ELEMENTS[self.name].bits

    @property
    def bytes(self) -> int:
        """Bytes per element in memory; types narrower than 8 bits take one."""
        return ELEMENTS[self.name].bytes

    @property
    def is_float(self) -> bool:
        return _ROWS[self.name].digits > 0

    @property
    def is_integer(self) -> bool:
        return ELEMENTS[self.name].kind in ("int", "uint")

    @property
    def is_narrow(self) -> bool:
        """Whether it is a float computed in f32, and rounded after each operation."""
        return 0 < _ROWS[self.name].digits < 24  # f32's

    @property
    def is_coded(self) -> bool:
        """Whether an element in memory is a code, and no value that a machine computes with."""
        return self.is_narrow or (self.bits < 8 and self.is_integer)

    @property
    def computed(self) -> DType:
        """The register type: f32 for narrow floats, a byte for short integers."""
        if self.is_narrow:
            return DType("f32")
        return DType(f"{self.name[0]}8") if self.is_coded else self

    @property
    def is_storage(self) -> bool:
        """Whether it is a storage type, cast before any computation."""
        return _ROWS[self.name].is_storage

    @property
    def numpy(self) -> np.dtype[Any]:
        return ELEMENTS[self.name].numpy

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and greatest value of an integer or bool dtype."""
        return ELEMENTS[self.name].bounds

    def beyond(self, other: DType) -> int:
        """The offset between the numbers of two dtypes of the same width.

        >>> u8.beyond(i8), i8.beyond(u8), i8.beyond(i8)
        (128, -128, 0)
        """
        return int(self.bounds[0]) - int(other.bounds[0])

    @property
    def greatest(self) -> float:
        """The greatest finite value of a float.

        >>> f32.greatest == float(np.finfo(np.float32).max)
        True
        """
        row = _ROWS[self.name]
        top = (1 << row.exponent) - 1 - row.has_infinity - row.bias
        last = 2 if row.special == "last" else 1  # the last code of the last exponent may be nan
        return (2.0 - last * 2.0 ** (1 - row.digits)) * 2.0**top

    @property
    def overflow(self) -> float:
        """Half a step past the greatest finite value of a float: smaller values round to a finite
        number.

        >>> f16.overflow, f64.overflow
        (65520.0, inf)
        """
        greatest = self.greatest
        return greatest + 2.0 ** (math.frexp(greatest)[1] - self.row.digits - 1)

    def __str__(self) -> str:
        return self.name


bool_: Final = DType("bool")
i8, i16, i32, i64 = (DType(f"i{n}") for n in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{n}") for n in (8, 16, 32, 64))
f16, bf16, f32, f64 = (DType(n) for n in ("f16", "bf16", "f32", "f64"))
f8e4m3fn, f8e5m2, i4, u4 = (DType(n) for n in ("f8e4m3fn", "f8e5m2", "i4", "u4"))
f8e4m3fnuz, f8e5m2fnuz, f4e2m1fn = (DType(n) for n in ("f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn"))
i2, u2 = DType("i2"), DType("u2")
DTYPES: Final = tuple(DType(name) for name in _ROWS)
COMPUTED: Final = tuple(each for each in DTYPES if not each.is_storage)
"""The dtypes that arithmetic is done in."""

_BY_NUMPY: Final = {each.numpy: each for each in DTYPES}


def dtype(of: DType | str | np.dtype[Any] | type) -> DType:
    """The dtype meant by a Plica name, a numpy name or a numpy dtype."""
    if isinstance(of, DType):
        return of
    if isinstance(of, str) and of in _ROWS:
        return DType(of)
    if (found := _BY_NUMPY.get(np.dtype(of))) is None:
        raise ValueError(f"Plica has no dtype for {of!r}; it has {', '.join(_ROWS)}.")
    return found
