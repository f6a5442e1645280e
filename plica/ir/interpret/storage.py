"""Storage: the memory of the loop interpreter, which notices every misuse.

>>> from plica.ir.type.dtype import i32
>>> from plica.ir.loop.tensor import buffer
>>> memory = Storage.blank(buffer("x", (2, 3), i32), (2, 3), [])
>>> memory.store((1, 2), 7)
>>> memory.load((1, 2))
7
>>> row = memory.view(buffer("row", (3,), i32), (1, 0), (1, 3), (1,))
>>> row.load((2,))
7
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from attrs import Factory, define, field

from plica.core.diagnostic import MAX_TENSOR_BYTES, EvaluationError, too_large
from plica.ir.interpret.lane import strides_of
from plica.ir.interpret.value import Array
from plica.ir.loop.memory_scope import is_scope, scope
from plica.ir.loop.scalar import Buffer
from plica.runtime.error import Place


class Watcher(Protocol):
    """Observes every access, and refuses races."""

    def read(self, storage: Storage, at: int) -> None: ...

    def write(self, storage: Storage, at: int) -> None: ...

    def doubts(self, storage: Storage, indices: Sequence[int]) -> bool:
        """Whether a read of an undefined element may turn out to be a race instead."""


@define(eq=False)
class Storage:
    """The elements of one buffer."""

    buffer: Buffer
    shape: tuple[int, ...]
    items: Array
    written: bytearray
    watchers: Sequence[Watcher]
    strides: tuple[int, ...]
    offset: int
    root: Storage = Factory(lambda self: self, takes_self=True)
    constant: bool = False  # nobody writes it, so that reading it needs no notes
    item: Callable[[int], Any] = field(init=False)
    private: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.item = self.items.item
        reach = self.buffer.scope
        self.private = is_scope(reach) and scope(reach).reach == "thread"

    @staticmethod
    def blank(
        buffer: Buffer,
        shape: tuple[int, ...],
        watchers: Sequence[Watcher],
        strides: tuple[int, ...] | None = None,
    ) -> Storage:
        """A buffer whose elements are undefined; without strides it is row-major."""
        steps = tuple(strides_of(shape)) if strides is None else strides
        count, offset = math.prod(shape), 0
        if strides is not None and count:
            moves = [(size - 1) * step for size, step in zip(shape, steps, strict=True)]
            offset = -sum(min(0, move) for move in moves)
            count = offset + sum(max(0, move) for move in moves) + 1
        if count * buffer.dtype.bytes > MAX_TENSOR_BYTES:
            raise EvaluationError(too_large(f"{str(buffer.name)!r} of {count} elements"))
        items = np.zeros(count, buffer.dtype.numpy)
        return Storage(buffer, shape, items, bytearray(count), watchers, steps, offset)

    def fresh(self) -> Storage:
        """Another storage of the same form, undefined."""
        items, written = np.zeros_like(self.items), bytearray(len(self.written))
        return Storage(
            self.buffer, self.shape, items, written, self.watchers, self.strides, self.offset
        )

    def view(
        self, buffer: Buffer, starts: Sequence[int], extents: Sequence[int], kept: Sequence[int]
    ) -> Storage:
        """A box of this storage as a buffer with the kept dimensions of the box."""
        for start, extent, size in zip(starts, extents, self.shape, strict=True):
            if extent < 0 or start < 0 or start + extent > size:
                self.refuse(
                    "index-out-of-bounds",
                    f"A region of {str(self.buffer.name)!r} goes outside its bounds.",
                    f"a box within {self.shape}",
                    f"from {tuple(starts)}, {tuple(extents)} wide",
                )
        offset = self.offset
        for start, step in zip(starts, self.strides, strict=True):
            offset += start * step
        new = Storage(
            buffer,
            tuple([extents[at] for at in kept]),
            self.items,
            self.written,
            self.watchers,
            tuple([self.strides[at] for at in kept]),
            offset,
            self.root,
        )
        new.constant, new.private = self.constant, self.private
        return new

    def load(self, indices: Sequence[int]) -> Any:
        """An element that was written before."""
        at = self.offset
        for index, size, step in zip(indices, self.shape, self.strides, strict=True):
            if not 0 <= index < size:
                self.outside(indices, "read")
            at += index * step
        if not self.written[at] and not any(each.doubts(self, indices) for each in self.watchers):
            self.undefined(indices)
        if self.watchers and not self.constant:
            for watcher in self.watchers:
                watcher.read(self, at)
        return self.item(at)

    def store(self, indices: Sequence[int], value: Any) -> None:
        """Write an element."""
        at = self.offset
        for index, size, step in zip(indices, self.shape, self.strides, strict=True):
            if not 0 <= index < size:
                self.outside(indices, "written")
            at += index * step
        if self.watchers:
            for watcher in self.watchers:
                watcher.write(self, at)
        self.written[at] = 1
        self.items[at] = value

    def whole(self) -> Array:
        """All elements, defined or not, in the buffer's shape; not a copy."""
        return _strided(self.items, self)

    def marks(self) -> Array:
        """Which elements were written, in the buffer's shape; not a copy."""
        return _strided(np.frombuffer(self.written, np.uint8), self)

    def array(self) -> Array:
        """The whole buffer, which must have been written everywhere."""
        marks = self.marks()
        if not marks.all():
            place = tuple(int(i) for i in np.unravel_index(int(marks.argmin()), self.shape))
            self.refuse(
                "uninitialised-read",
                f"The kernel never writes an element of {str(self.buffer.name)!r}.",
                f"all of {self.shape}",
                f"nothing at {place}",
            )
        return np.array(self.whole(), order="C")

    def indices(self, at: int) -> tuple[int, ...]:
        """Indices of the element at an address; any of them if strides overlap."""
        left, found = at - self.offset, [0] * len(self.shape)
        order = sorted(range(len(self.shape)), key=lambda d: -abs(self.strides[d]))
        for d in order:
            if step := self.strides[d]:
                found[d] = min(max(0, left // step), self.shape[d] - 1)
                left -= found[d] * step
        return tuple(found)

    def outside(self, indices: Sequence[int], how: str) -> NoReturn:
        """Refuse an index."""
        self.refuse(
            "index-out-of-bounds",
            f"An element of {str(self.buffer.name)!r} is {how} outside its bounds.",
            f"indices within {self.shape}",
            f"{tuple(indices)}",
        )

    def undefined(self, indices: Sequence[int]) -> NoReturn:
        """Refuses a read of an element that was never written."""
        self.refuse(
            "uninitialised-read",
            f"An element of {str(self.buffer.name)!r} is read before it is written.",
            "a store before the load",
            f"a load at {tuple(indices)}",
        )

    def refuse(self, code: str, message: str, expected: str, found: str) -> NoReturn:
        """Raise an error about this buffer."""
        raise EvaluationError.of(code, message, Place(node=str(self.buffer.name)), expected, found)


def _strided(flat: Array, of: Storage) -> Array:
    if 0 in of.shape:
        return np.empty(of.shape, flat.dtype)
    width = flat.itemsize
    # Numpy lays no view over dtypes that others have added.
    bare = flat if flat.dtype.num < 256 else flat.view(np.dtype(f"u{width}"))
    steps = [stride * width for stride in of.strides]
    view: Array = np.ndarray(of.shape, bare.dtype, bare, of.offset * width, steps)
    return view if bare.dtype == flat.dtype else view.view(flat.dtype)
