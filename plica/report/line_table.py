r"""Line tables: many texts that differ little, each as a delta against the one before it.

>>> table = LineTable()
>>> first = table.delta("", "for i in range(4):\n    x[i] = 0.0")
>>> table.delta("for i in range(4):\n    x[i] = 0.0", "for i in unrolled(4):\n    x[i] = 0.0")
[[0, 1, [2]]]
>>> applied([0, 1], [[0, 1, [2]]])
[2, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

Hunk: TypeAlias = "list[int | list[int]]"


class LineTable:
    """Numbered lines, each stored once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def lines(self) -> list[str]:
        """All lines, by number."""
        return list(self._numbers)

    def numbers(self, text: str) -> list[int]:
        """The lines of a text as numbers."""
        return [self._numbers.setdefault(each, len(self._numbers)) for each in text.splitlines()]

    def delta(self, old: str, new: str) -> list[Hunk]:
        """What makes the new text of the old one."""
        before, after = self.numbers(old), self.numbers(new)
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        found: list[Hunk] = [
            [low, high - low, after[start:stop]]
            for tag, low, high, start, stop in matcher.get_opcodes()
            if tag != "equal"
        ]
        return found[::-1]


def applied(old: Sequence[int], delta: Sequence[Hunk]) -> list[int]:
    """The numbers of the new text, as the page finds them."""
    new = list(old)
    for at, dropped, lines in delta:
        assert isinstance(at, int)
        assert isinstance(dropped, int)
        assert isinstance(lines, list)
        new[at : at + dropped] = lines
    return new
