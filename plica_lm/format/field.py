"""Fields of a block: numbers of some bits that lie at regular distances.

A block is a few bytes that hold numbers over an index space `shape`. A field has the byte of its
first number, its width, and the stride in *bits* along each axis of the shape; 0 for a constant.
Trailing axes may be omitted:

    shape (2, 16), bits(4, 2, 4, 8)      16 bytes from byte 2 on, the low halves first
    shape (2, 16), floats(f16, 0)        one float of 16 bits for the whole block

>>> bits(4, 2, 4, 8)
BitField(width=4, at=2, strides=(4, 8), is_signed=False, dtype=None, extents=(), bit=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from attrs import evolve, frozen

from plica import op
from plica.ir.graph import Expr
from plica.ir.type.dtype import DType, f32, i32

BYTE = 8


@frozen
class BitField:
    """Integers of `width` bits, or floats of a dtype with as many; `extents` replaces the shape."""

    width: int
    at: int
    strides: tuple[int, ...]
    is_signed: bool = False
    dtype: DType | None = None
    extents: tuple[int, ...] = ()
    bit: int = 0  # where the first number starts in its byte

    def over(self, *extents: int) -> BitField:
        """The field over its own index space."""
        return evolve(self, extents=extents)

    def attributes(self, shape: Sequence[int], size: int) -> dict[str, Any]:  # Any: of operators
        """The attributes of the operator `bit_field` that reads it."""
        space = self.extents or shape
        strides = (*self.strides, *[0] * (len(space) - len(self.strides)))
        extents = tuple(n if s else 1 for n, s in zip(space, strides, strict=False))
        return {
            "block": size, "at": BYTE * self.at + self.bit, "width": self.width,
            "extents": extents, "strides": strides, "signed": self.is_signed,
        }  # fmt: skip

    def term(self, raw: Expr, shape: Sequence[int], size: int) -> Expr:
        """The numbers of blocks of `size` bytes on the last axis, as i32 or f32; constant axes have
        length 1."""
        word = op.bit_field(raw, **self.attributes(shape, size))
        return (
            word if self.dtype is None else op.cast(op.bits_as(word, dtype=self.dtype), dtype=f32)
        )


@frozen
class Axis:
    """The place along an axis of the shape, as i32."""

    axis: int


Field: TypeAlias = BitField | Axis


def bits(width: int, at: int, *strides: int, bit: int = 0) -> BitField:
    """Unsigned integers; those of 32 bits are i32 with the same bits."""
    return BitField(width, at, strides, bit=bit)


def i8s(at: int, *strides: int) -> BitField:
    """Signed bytes."""
    return BitField(8, at, strides, is_signed=True)


def floats(dtype: DType, at: int, *strides: int) -> BitField:
    """Floats of a narrow dtype, as f32."""
    return BitField(dtype.bits, at, strides, dtype=dtype)


def index(axis: int, shape: Sequence[int]) -> Expr:
    """The places along an axis, in the rank of a shape."""
    extents = tuple(n if at == axis else 1 for at, n in enumerate(shape))
    return op.iota(shape=extents, axis=axis, dtype=i32)
