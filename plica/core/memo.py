"""Memos: bounded caches of results by key, which other processes can fill.

>>> squares: Memo[int, int] = Memo(2)
>>> squares.tell(3, 9)
>>> squares.found(3, lambda: 0), squares.found(4, lambda: 16), len(squares)
(9, 16, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """At most a given number of results; each step is one for all threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[K, V] = {}

    def found(self, key: K, make: Callable[[], V]) -> V:
        """The result of a key, made where it is not known."""
        try:
            return self._held[key]
        except KeyError:
            pass  # what `make` raises has nothing to do with it
        made = make()
        self.tell(key, made)
        return made

    def get(self, key: K) -> V | None:
        """The result of a key, or None if it is unknown."""
        return self._held.get(key)

    def tell(self, key: K, value: V) -> None:
        """Inserts a result computed elsewhere."""
        self._held[key] = value
        while len(self._held) > self._most:
            self._held.pop(next(iter(self._held)), None)

    def take(self, key: K) -> V | None:
        """Removes and returns the result of a key, or None if it is unknown."""
        return self._held.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)
