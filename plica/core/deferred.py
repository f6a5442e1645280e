"""Deferred bytes: what a term holds before anybody has looked at it.

Which bytes they are, their origin says; they are made when they are first read, and kept from then.
Two of one origin are equal.  One origin is not compared with another, nor with bytes that are there
already, since that would make them: terms that hold such bytes are one object where their origin
is, and otherwise have the same digest where their bytes are the same.

>>> late = DeferredBytes("two spaces", 2, lambda: memoryview(b"  "))
>>> len(late), late == DeferredBytes("two spaces", 2, lambda: memoryview(b"  ")), bytes(late.read())
(2, True, b'  ')

Bytes that a model stores are known by their digest, so the compiler treats all models alike whose
stored bytes it has not looked at.  What it did look at is noted here, by digest and for as long as
the process lives: who has a result in hand need not ask again, so nothing is ever taken back.
Where bytes become other bytes whose origin says how, nobody has looked (`unobserved`).

>>> weight = StoredBytes(b"1234")
>>> with unobserved():
...     bytes(weight.read()), weight.digest in LOOKED_AT
(b'1234', False)
>>> bytes(weight.read()), weight.digest in LOOKED_AT
(b'1234', True)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

LOOKED_AT: Final[set[str]] = set()
"""The digests of stored bytes that something may depend on."""

_UNOBSERVED: Final[ContextVar[bool]] = ContextVar("unobserved", default=False)


@contextmanager
def unobserved() -> Iterator[None]:
    """What is read meanwhile is not looked at: all that becomes of it says what it is made of."""
    token = _UNOBSERVED.set(True)
    try:
        yield
    finally:
        _UNOBSERVED.reset(token)


def look_at(leaves: Iterable[str]) -> None:
    """Note that something depends on stored bytes, by their digests."""
    if not _UNOBSERVED.get():
        LOOKED_AT.update(leaves)


class DeferredBytes:
    """So many bytes of an origin, which `make` gives when they are needed; `leaves` are the digests
    of the stored bytes that they are made of."""

    __slots__ = ("_data", "_make", "count", "leaves", "origin")

    def __init__(
        self,
        origin: Hashable,
        count: int,
        make: Callable[[], memoryview],
        leaves: frozenset[str] = frozenset(),
    ) -> None:
        self.origin = origin
        self.count = count
        self.leaves = leaves
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
        look_at(self.leaves)
        if self._data is None:
            with unobserved():
                self._data = self._make()
        return self._data


class StoredBytes(DeferredBytes):
    """Bytes that a model stores; their origin is their digest."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        found = hashlib.sha256(data).hexdigest()
        super().__init__(found, len(data), lambda: memoryview(data), frozenset((found,)))

    @property
    def digest(self) -> str:
        """Their SHA-256."""
        (found,) = self.leaves
        return found
