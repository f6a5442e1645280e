"""Deferred bytes: what a term holds before anybody has looked at it.

Which bytes they are, their origin says; they are made when they are first read, and kept from then.
Two of one origin are equal.  One origin is not compared with another, nor with bytes that are there
already, since that would make them: terms that hold such bytes are one object where their origin
is, and otherwise have the same digest where their bytes are the same.

>>> late = DeferredBytes("two spaces", 2, lambda: memoryview(b"  "))
>>> len(late), late == DeferredBytes("two spaces", 2, lambda: memoryview(b"  ")), bytes(late.read())
(2, True, b'  ')
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class DeferredBytes:
    """So many bytes of an origin, which `make` gives when they are needed."""

    __slots__ = ("_data", "_make", "count", "origin")

    def __init__(self, origin: Hashable, count: int, make: Callable[[], memoryview]) -> None:
        self.origin = origin
        self.count = count
        self._make = make
        self._data: memoryview | None = None

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeferredBytes):
            return False
        return self.origin == other.origin and self.count == other.count

    def __hash__(self) -> int:
        return hash((self.origin, self.count))

    @property
    def is_read(self) -> bool:
        """Whether they are made already."""
        return self._data is not None

    def read(self) -> memoryview:
        """The bytes; two threads that ask at once make them twice, and they are the same."""
        if self._data is None:
            self._data = self._make()
        return self._data
