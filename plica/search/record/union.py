"""Unions of databases: the best of several, or the first that knows a work.

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

from plica.search.record.record import Record, joined
from plica.search.record.source import RecordSource


class UnionDatabase(RecordSource):
    """The records of several databases; of one trial the better record stays."""

    def __init__(self, *parts: RecordSource) -> None:
        self.parts = parts

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        found: dict[str, Record] = {}
        for part in self.parts:
            for each in part.all(key, target):
                known = found.get(each.identity)
                found[each.identity] = each if known is None else joined(known, each)
        return tuple(sorted(found.values(), key=_place))


class OrderedUnion(RecordSource):
    """Of each work on each machine the records of the first database that has one with a cost."""

    def __init__(self, *parts: RecordSource) -> None:
        self.parts = parts

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        answered: set[tuple[str, str]] = set()
        found: list[Record] = []
        for part in self.parts:
            here = [each for each in part.all(key, target) if _work(each) not in answered]
            found += here
            answered |= {_work(each) for each in here if each.cost is not None}
        return tuple(sorted({each.identity: each for each in reversed(found)}.values(), key=_place))


def _work(of: Record) -> tuple[str, str]:
    return of.key, of.target


def _place(of: Record) -> tuple[str, str, str, int, int, str]:
    """The order of a database: work by work, run by run."""
    return of.key, of.target, of.policy, of.seed, of.trial, of.identity
