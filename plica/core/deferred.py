"""Deferred bytes: the data of a constant, computed when it is first read.

An origin identifies the bytes; two deferred values of one origin are equal.  Different origins are
not compared, since that would compute the bytes: terms that hold deferred bytes are identical if
their origins are, and otherwise have equal digests if their bytes are equal.

>>> late = DeferredBytes("two spaces", 2, lambda: memoryview(b"  "))
>>> len(late), late == DeferredBytes("two spaces", 2, lambda: memoryview(b"  ")), bytes(late.read())
(2, True, b'  ')

Stored bytes of a model are identified by their digest, so compiled code can be reused for models
that differ only in bytes the compiler never read.  The digests of bytes that it did read are
recorded for the lifetime of the process, since results that depend on them may be cached.  Reads
that only produce other deferred bytes, whose origin names their source, are not recorded
(`unobserved`).

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

LOOKED_AT: Final[set[str]] = set()  # the digests of stored bytes that a result may depend on
_UNOBSERVED: Final[ContextVar[bool]] = ContextVar("unobserved", default=False)


@contextmanager
def unobserved() -> Iterator[None]:
    """Reads inside are not recorded: whatever they produce names its source."""
    token = _UNOBSERVED.set(True)
    try:
        yield
    finally:
        _UNOBSERVED.reset(token)


def look_at(leaves: Iterable[str]) -> None:
    """Record that a result depends on stored bytes, by their digests."""
    if not _UNOBSERVED.get():
        LOOKED_AT.update(leaves)


class DeferredBytes:
    """`count` bytes of an origin, computed by `make` on demand; `leaves` are the digests of the
    stored bytes that they are computed from."""

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
        """The bytes; two threads at once may both compute them, with equal results."""
        look_at(self.leaves)
        if self._data is None:
            with unobserved():
                self._data = self._make()
        return self._data


class StoredBytes(DeferredBytes):
    """Bytes stored in a model; their origin is their digest."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        found = hashlib.sha256(data).hexdigest()
        super().__init__(found, len(data), lambda: memoryview(data), frozenset((found,)))

    @property
    def digest(self) -> str:
        """Their SHA-256."""
        (found,) = self.leaves
        return found
