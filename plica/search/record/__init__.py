"""record: trials and what came of them, kept in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Applied",
    "Applies",
    "Database",
    "Record",
    "Stale",
    "applied",
    "fingerprint",
    "joined",
    "record",
    "versions",
]

if TYPE_CHECKING:
    from plica.search.record.apply import Applied, Applies, Stale, applied
    from plica.search.record.database import Database
    from plica.search.record.fingerprint import fingerprint, versions
    from plica.search.record.record import Record, joined, record
else:
    lazily(__name__)
