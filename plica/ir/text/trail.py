"""A trail: bindings in scopes, each undone where its scope ends; reader and printer share it.

>>> names: Trail[str, int] = Trail()
>>> mark = names.mark()
>>> names.put("x", 1)
>>> names.leave(mark)
>>> names.table
{}
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Trail(Generic[K, V]):
    """A table that remembers what it said before."""

    def __init__(self) -> None:
        self.table: dict[K, V] = {}
        self._past: list[tuple[K, V | None]] = []

    def mark(self) -> int:
        """The current position, to return to with `leave`."""
        return len(self._past)

    def put(self, key: K, value: V) -> None:
        """From here on the key has this value."""
        self._past.append((key, self.table.get(key)))
        self.table[key] = value

    def leave(self, mark: int) -> None:
        """Undoes what was put since `mark`."""
        while len(self._past) > mark:
            key, before = self._past.pop()
            if before is None:
                del self.table[key]
            else:
                self.table[key] = before
