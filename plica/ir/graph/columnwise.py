"""Columnwise arrays: each column along the first axis is made of a column of another array.

What is made of weights before a program runs may be several times as large as they are, and the
kernel that reads it wants the columns in another order.  As that is the order of the weights too,
columns are made where they are wanted, piece by piece, and no second array is written; the whole in
its own order is only made if somebody asks.

>>> def sums(parts, into):
...     np.add(parts[0], parts[1], out=into[0])
>>> made = ColumnwiseArray("sums", np.arange(6).reshape(2, 3), 1, sums)
>>> made.shape, made.whole()
((1, 3), array([[3, 5, 7]]))
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from plica.core.deferred import DeferredBytes
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.ir.interpret.lane import chunks
else:  # needed where something is made
    chunks = late("plica.ir.interpret.lane:chunks")

Array: TypeAlias = "np.ndarray[Any, Any]"

COLUMNS: Final = 1 << 15
"""How many columns are made at once: many for numpy, and few for a cache."""


class ColumnwiseArray(DeferredBytes):
    """So many rows of columns; `make` writes them into an array, from columns of the source."""

    __slots__ = ("make", "shape", "source")

    def __init__(
        self, origin: Hashable, source: Array, rows: int, make: Callable[[Array, Array], None]
    ) -> None:
        self.source = source
        self.shape: tuple[int, ...] = (rows, *source.shape[1:])
        self.make = make
        super().__init__(origin, prod(self.shape) * source.dtype.itemsize, self._bytes)

    def into(self, room: Array, source: Array) -> None:
        """Make the columns of a room, from the source in the order of the room."""
        if 0 in room.shape:
            return
        for piece in chunks([*room.shape[1:]], COLUMNS):
            at = (slice(None), *[slice(low, high) for low, high in piece])
            self.make(np.ascontiguousarray(source[at]), room[at])

    def whole(self) -> Array:
        """All columns in their order, in an array of its own."""
        room: Array = np.empty(self.shape, self.source.dtype)
        self.into(room, self.source)
        return room

    def _bytes(self) -> memoryview:
        plain = self.whole().reshape(-1).view(np.uint8)
        plain.flags.writeable = False
        return plain.data
