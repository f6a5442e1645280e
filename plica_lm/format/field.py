"""Fields of a block: numbers of some bits that lie at regular distances.

A block is a few bytes that hold numbers over an index space `shape`.  A field says at which byte
its first number starts, how wide it is, and by how many *bits* the place moves along each axis of
the shape; 0 where the number stays the same.  Trailing axes may be left out:

    shape (2, 16), bits(4, 2, 4, 8)      16 bytes from byte 2 on, the low halves first
    shape (2, 16), floats(f16, 0)        one float of 16 bits for the whole block

>>> bits(4, 2, 4, 8)
Bits(width=4, at=2, strides=(4, 8), is_signed=False, dtype=None, extents=(), bit=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from attrs import evolve, frozen

from plica import op
from plica.ir.graph import Expr
from plica.ir.type.dtype import DType, f32, i8, i32
from plica.runtime.error import Diagnostic, InputError

BYTE = 8


@frozen
class Bits:
    """Integers of `width` bits, or floats of a dtype with as many; `extents` replaces the shape."""

    width: int
    at: int
    strides: tuple[int, ...]
    is_signed: bool = False
    dtype: DType | None = None
    extents: tuple[int, ...] = ()
    bit: int = 0
    """Where the first number starts in its byte."""

    def over(self, *extents: int) -> Bits:
        """The field over an index space of its own."""
        return evolve(self, extents=extents)

    def checked(self, name: str, shape: Sequence[int], size: int) -> Bits:
        """The field, refused where it does not fit into a block."""
        shape, message = self.extents or shape, f"The field {name} does not fit into its block."
        if len(self.strides) > len(shape):
            raise _misfit(message, f"at most {len(shape)} strides", str(len(self.strides)))
        moves = [(n - 1) * s for n, s in zip(shape, self.strides, strict=False)]
        first = sum(m for m, s in zip(moves, self.strides, strict=False) if s % BYTE)
        first += self.bit + self.width
        if first > BYTE and (self.width not in (16, 32) or first != self.width):
            raise _misfit(message, "numbers within a byte, or whole words", f"{first} bits")
        if (last := self.at + (sum(moves) + self.bit + self.width + BYTE - 1) // BYTE) > size:
            raise _misfit(message, f"at most {size} bytes", f"{last} bytes")
        return self

    def term(self, block: Expr, lead: int, shape: Sequence[int], size: int) -> Expr:
        """The numbers, as i32 or f32, of blocks of bytes on the last axis, after `lead` others."""
        shape = self.extents or shape
        moves = list(enumerate(self.strides))
        outer = sorted((s // BYTE, n) for n, s in moves if s and s % BYTE == 0)[::-1]
        unit, at, x = max(self.width // BYTE, 1), self.at, block
        for depth, (stride, axis) in enumerate(outer):
            start = min(at, size - stride * shape[axis])
            x = op.slice(x, starts=(start,), stops=(start + stride * shape[axis],), axes=(-1,))
            x = op.reshape_codes(x, codes=(*[0] * (lead + depth), -4, shape[axis], stride))
            at, size = at - start, stride
        count = len(outer)
        places = [self._byte(x, at + n, lead + count) for n in range(unit)]
        word = reduce(op.bitwise_or, [op.left_shift(each, BYTE * n) if n else each
                                      for n, each in enumerate(places)])  # fmt: skip
        order = [axis for _, axis in outer]
        if order != sorted(order):
            axes = [lead + order.index(axis) for axis in sorted(order)]
            word = op.transpose(word, axes=(*range(lead), *axes))
        missing = [lead + n for n in range(len(shape)) if n not in order]
        word = op.expand_dims(word, axis=tuple(missing)) if missing else word
        if self.bit:
            word = op.right_shift(word, self.bit)
        for axis, stride in moves:
            if stride % BYTE:
                word = op.right_shift(word, index(axis, shape) * stride)
        return self._value(word)

    def _byte(self, x: Expr, at: int, rank: int) -> Expr:
        part = op.slice(x, starts=(at,), stops=(at + 1,), axes=(-1,))
        return op.cast(op.squeeze(part, axis=(rank,)), dtype=i32)

    def _value(self, word: Expr) -> Expr:
        if self.dtype is not None:
            return op.cast(op.bits_as(word, dtype=self.dtype), dtype=f32)
        if self.width == BYTE:
            return op.cast(op.cast(word, dtype=i8), dtype=i32) if self.is_signed else word
        return word if self.width == 32 else op.bitwise_and(word, (1 << self.width) - 1)


@frozen
class Index:
    """The place along an axis of the shape, as i32."""

    axis: int


Field: TypeAlias = Bits | Index


def bits(width: int, at: int, *strides: int, bit: int = 0) -> Bits:
    """Unsigned integers; those of 32 bits are i32 with the same bits."""
    return Bits(width, at, strides, bit=bit)


def i8s(at: int, *strides: int) -> Bits:
    """Signed bytes."""
    return Bits(8, at, strides, is_signed=True)


def floats(dtype: DType, at: int, *strides: int) -> Bits:
    """Floats of a narrow dtype, as f32."""
    return Bits(dtype.bits, at, strides, dtype=dtype)


def index(axis: int, shape: Sequence[int]) -> Expr:
    """The places along an axis, in the rank of a shape."""
    extents = tuple(n if at == axis else 1 for at, n in enumerate(shape))
    return op.iota(shape=extents, axis=axis, dtype=i32)


def _misfit(message: str, expected: str, found: str) -> InputError:
    return InputError(Diagnostic("ill-formed-term", message, None, expected, found))
