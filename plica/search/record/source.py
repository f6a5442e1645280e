"""Record sources: the interface of every kind of database.

Database           a file of SQLite, or memory
JsonDatabase       a text of one JSON row a line, which merges and diffs as text does
FunctionDatabase   records that a function makes when they are asked for
UnionDatabase      the best of several
OrderedUnion       the first of several that knows a work

>>> from plica.search.record.database import Database
>>> from plica.search.record.record import record
>>> mine, shipped = Database(), Database()
>>> mine.put(record("w", "cpu", "{}", "rowed", (2e-3,)))
>>> shipped.put(record("w", "cpu", "{}", "blocked", (1e-3,)))
>>> UnionDatabase(mine, shipped).best("w", "cpu").form
'blocked'
>>> OrderedUnion(mine, shipped).best("w", "cpu").form
'rowed'

Laws: a union is commutative, associative and idempotent, as joining records is; an ordered union is
associative and idempotent.  Nothing is written to a union: its parts are written to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from plica.search.record.order import in_order
from plica.search.record.record import Record, joined

LINES: Final = ".jsonl"  # the suffix of files of JSON lines, and of no other database


class RecordSource(ABC):
    """Records by the key of the work and the machine."""

    @abstractmethod
    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        """The records of some work, of some machine, or every one."""

    def find(self, identity: str) -> Record | None:
        """The record of a trial, or None."""
        return next((record for record in self.all() if record.identity == identity), None)

    def best(self, key: str, target: str) -> Record | None:
        """The best record of some work on a machine, as `plica.search.record.order` ranks them."""
        return next(iter(self.top(key, target, 1)), None)

    def top(self, key: str, target: str, count: int) -> tuple[Record, ...]:
        """The best records, at most one for each schedule."""
        return in_order(self.all(key, target))[:count]

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[Record]:
        return iter(self.all())


class FunctionDatabase(RecordSource):
    """Records that `schedule(key, target)` gives, remembered; `works` are those that are listed."""

    def __init__(
        self,
        schedule: Callable[[str, str], Iterable[Record]],
        works: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.works = tuple(works)

        @cache
        def records_of(key: str, target: str) -> tuple[Record, ...]:
            records = tuple(schedule(key, target))
            for record in records:
                if (record.key, record.target) != (key, target):
                    raise ValueError(f"A record of {record.key} was given for {key}.")
            return records

        self._records_of = records_of

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        if key is not None and target is not None:
            return self._records_of(key, target)
        works = [w for w in self.works if key in (None, w[0]) and target in (None, w[1])]
        return tuple([record for work in works for record in self._records_of(*work)])


class UnionDatabase(RecordSource):
    """The records of several databases; of one trial the better record counts."""

    def __init__(self, *parts: RecordSource) -> None:
        self.parts = parts

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        return merged([record for part in self.parts for record in part.all(key, target)])


class OrderedUnion(RecordSource):
    """Of each work on each machine the records of the first database that has one with a cost."""

    def __init__(self, *parts: RecordSource) -> None:
        self.parts = parts

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        answered: set[tuple[str, str]] = set()
        first: dict[str, Record] = {}
        for part in self.parts:
            here = [e for e in part.all(key, target) if (e.key, e.target) not in answered]
            first = {record.identity: record for record in here} | first
            answered |= {(record.key, record.target) for record in here if record.cost is not None}
        return tuple(sorted(first.values(), key=_place))


def merged(records: Iterable[Record]) -> tuple[Record, ...]:
    """One record for each trial, the better one, in the order of a database."""
    by_trial: dict[str, Record] = {}
    for record in records:
        known = by_trial.get(record.identity)
        by_trial[record.identity] = record if known is None else joined(known, record)
    return tuple(sorted(by_trial.values(), key=_place))


def _place(of: Record) -> tuple[str, str, str, int, int, str]:
    """The order of a database: work by work, run by run."""
    return of.key, of.target, of.policy, of.seed, of.trial, of.identity
