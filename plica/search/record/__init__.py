"""record: trials and their outcomes, stored in files."""

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
    from plica.search.record.json_database import JsonDatabase
    from plica.search.record.record import Record, joined, record
    from plica.search.record.source import (
        FunctionDatabase,
        OrderedUnion,
        RecordSource,
        UnionDatabase,
    )
    from plica.search.target import fingerprint, versions
else:
    lazily(__name__)
