"""Sources of records: what every kind of database answers, whatever it keeps them in.

Database           a file of SQLite, or memory
JsonDatabase       a text of one JSON row a line, which merges and diffs as text does
FunctionDatabase   records that a function makes when they are asked for
UnionDatabase      the best of several
OrderedUnion       the first of several that knows a work
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from plica.search.record.order import in_order
from plica.search.record.record import Record

LINES: Final = ".jsonl"
"""How the names of files of JSON lines end; no other kind of database has such a name."""


class RecordSource(ABC):
    """Records by the key of the work and the machine."""

    @abstractmethod
    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        """The records of some work, of some machine, or every one."""

    def find(self, identity: str) -> Record | None:
        """The record of what was tried, if it was."""
        return next((each for each in self.all() if each.identity == identity), None)

    def best(self, key: str, target: str) -> Record | None:
        """The best record of some work on a machine: what was timed in turns with others counts
        for more than what was timed alone (`plica.search.record.order`)."""
        found = self.top(key, target, 1)
        return found[0] if found else None

    def top(self, key: str, target: str, count: int) -> tuple[Record, ...]:
        """The best records, at most one for each schedule."""
        return in_order(self.all(key, target))[:count]

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[Record]:
        return iter(self.all())
