"""Rows of caches: who has which, and texts that ended and may be continued.

A row holds the keys and values of one token at one position. Texts with a common prefix share its
rows; a row is free when no text uses it.

>>> rows = Rows(6)
>>> rows.take([7, 8, 9], 4)
([1, 2, 3, 4], 0)
>>> rows.take([7, 8], 2) is None
True
>>> rows.give([7, 8, 9], [1, 2, 3, 4])
>>> rows.take([7, 8, 5], 4)
([1, 2, 4, 5], 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Final

MAX_KEPT: Final = 256  # texts that ended and are remembered, at most


class Rows:
    """The rows of the caches of one model; row 0 is the spare one."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))
        self._uses = [0] * count
        self._kept: dict[tuple[int, ...], list[int]] = {}
        self.reused = 0

    def take(self, tokens: Sequence[int], count: int) -> tuple[list[int], int] | None:
        """Rows for a text that starts with these tokens, and how many are already filled: never
        all, because the last token must be processed. None if there are too few rows."""
        shared: list[int] = []
        for text, rows in self._kept.items():
            alike = map(eq, text, tokens[: len(tokens) - 1])
            if (same := sum(takewhile(bool, alike))) > len(shared):
                shared = rows[:same]
        self._use(shared, 1)
        while len(self._free) < count - len(shared) and self._kept:
            oldest = next(iter(self._kept))
            self._use(self._kept.pop(oldest), -1)
        if len(self._free) < count - len(shared):
            self._use(shared, -1)
            return None
        own = [self._free.pop() for _ in range(count - len(shared))]
        self._use(own, 1)
        self.reused += len(shared)
        return [*shared, *own], len(shared)

    def give(self, tokens: Sequence[int], rows: Sequence[int]) -> None:
        """A text ended: the rows of these tokens are remembered, the others given back."""
        kept = list(rows[: len(tokens)])
        self._use(kept, 1)
        self._use(rows, -1)
        self._use(self._kept.pop(tuple(tokens), []), -1)
        self._kept[tuple(tokens)] = kept
        if len(self._kept) > MAX_KEPT:
            self._use(self._kept.pop(next(iter(self._kept))), -1)

    def _use(self, rows: Sequence[int], more: int) -> None:
        for row in rows:
            self._uses[row] += more
            if more < 0 and self._uses[row] == 0:
                self._free.append(row)
