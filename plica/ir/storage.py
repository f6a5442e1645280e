"""Storage: the memory of the loop interpreter, which notices every misuse.

Each buffer's elements are kept with a mark for those that were written.  Inside parallel loops
every access is noted: a `Strand` is one such loop under way, and knows which of its iterations
read and wrote which element.

>>> from plica.ir.dtype import i32
>>> from plica.ir.tensor import buffer
>>> memory = Storage.blank(buffer("x", (2,), i32), (2,), [])
>>> memory.store((1,), 7)
>>> memory.load((1,))
7
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import numpy as np

from plica.core.diagnostic import EvaluationError
from plica.ir.scalar import Buffer
from plica.ir.value import Array
from plica.runtime.error import Diagnostic, Place

_MANY: Final = -1  # read by more than one iteration


class Strand:
    """A parallel loop under way: its present iteration, and who touched what during it."""

    __slots__ = ("iteration", "read", "written")

    def __init__(self) -> None:
        self.iteration = 0
        self.read: dict[tuple[Storage, int], int] = {}
        self.written: dict[tuple[Storage, int], int] = {}


class Storage:
    """The elements of one buffer."""

    __slots__ = ("buffer", "items", "shape", "strands", "written")

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...],
        items: list[Any],
        written: bytearray,
        strands: list[Strand],
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.items = items
        self.written = written
        self.strands = strands

    @staticmethod
    def of(buffer: Buffer, array: Array, strands: list[Strand]) -> Storage:
        """A buffer that holds an array."""
        wide = array.astype(np.float64) if buffer.dtype.is_float else array
        items = wide.ravel().tolist()
        return Storage(buffer, array.shape, items, bytearray(b"\1") * len(items), strands)

    @staticmethod
    def blank(buffer: Buffer, shape: tuple[int, ...], strands: list[Strand]) -> Storage:
        """A buffer whose elements are undefined."""
        count = math.prod(shape)
        return Storage(buffer, shape, [None] * count, bytearray(count), strands)

    def load(self, indices: Sequence[int]) -> Any:
        """An element that was written before."""
        at = 0
        for index, size in zip(indices, self.shape, strict=True):
            if not 0 <= index < size:
                self.outside(indices, "read")
            at = at * size + index
        if not self.written[at]:
            self.undefined(indices)
        if self.strands:
            self.note_read(at, indices)
        return self.items[at]

    def store(self, indices: Sequence[int], value: Any) -> None:
        """Write an element."""
        at = 0
        for index, size in zip(indices, self.shape, strict=True):
            if not 0 <= index < size:
                self.outside(indices, "written")
            at = at * size + index
        if self.strands:
            self.note_write(at, indices)
        self.written[at] = 1
        self.items[at] = value

    def array(self) -> Array:
        """The whole buffer, which must have been written everywhere."""
        missing = self.written.find(0)
        if missing >= 0:
            place = tuple(int(i) for i in np.unravel_index(missing, self.shape))
            self.refuse(
                "uninitialised-read",
                f"The kernel never writes an element of {str(self.buffer.name)!r}.",
                f"all of {self.shape}",
                f"nothing at {place}",
            )
        return np.array(self.items, self.buffer.dtype.numpy).reshape(self.shape)

    def note_read(self, at: int, indices: Sequence[int]) -> None:
        """A read inside parallel loops: it races with a write of another iteration."""
        key = self, at
        for strand in self.strands:
            now = strand.iteration
            if strand.written.get(key, now) != now:
                self.race(indices, strand.written[key], now, "reads it")
            if strand.read.setdefault(key, now) != now:
                strand.read[key] = _MANY

    def note_write(self, at: int, indices: Sequence[int]) -> None:
        """A write inside parallel loops: it races with any access of another iteration."""
        key = self, at
        for strand in self.strands:
            now = strand.iteration
            for seen in (strand.written.get(key, now), strand.read.get(key, now)):
                if seen != now:
                    self.race(indices, seen, now, "writes it")
            strand.written[key] = now

    def outside(self, indices: Sequence[int], how: str) -> NoReturn:
        """Refuse an index."""
        self.refuse(
            "index-out-of-bounds",
            f"An element of {str(self.buffer.name)!r} is {how} outside its bounds.",
            f"indices within {self.shape}",
            f"{tuple(indices)}",
        )

    def undefined(self, indices: Sequence[int]) -> NoReturn:
        """Refuse a read of what was never written."""
        self.refuse(
            "uninitialised-read",
            f"An element of {str(self.buffer.name)!r} is read before it is written.",
            "a store before the load",
            f"a load at {tuple(indices)}",
        )

    def race(self, indices: Sequence[int], before: int, now: int, how: str) -> NoReturn:
        """Refuse an access that another iteration does not allow."""
        other = "others" if before == _MANY else f"iteration {before}"
        self.refuse(
            "data-race",
            f"Iterations of a parallel loop race for an element of {str(self.buffer.name)!r}.",
            "elements that one iteration has for itself, or that all only read",
            f"{tuple(indices)}: iteration {now} {how}, and {other} used it before",
        )

    def refuse(self, code: str, message: str, expected: str, found: str) -> NoReturn:
        """Raise an error about this buffer."""
        place = Place(node=str(self.buffer.name))
        raise EvaluationError(Diagnostic(code, message, place, expected, found))
