"""record: trials and what came of them, kept in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Applied", "Applies", "Database", "FunctionDatabase", "JsonDatabase", "OrderedUnion", "Record",
    "RecordSource", "Stale", "UnionDatabase", "applied", "fingerprint", "joined", "record",
    "versions",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.search.record.apply import Applied, Applies, Stale, applied
    from plica.search.record.database import Database
    from plica.search.record.fingerprint import fingerprint, versions
    from plica.search.record.function_database import FunctionDatabase
    from plica.search.record.json_database import JsonDatabase
    from plica.search.record.record import Record, joined, record
    from plica.search.record.source import RecordSource
    from plica.search.record.union import OrderedUnion, UnionDatabase
else:
    lazily(__name__)
