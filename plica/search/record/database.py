"""Databases: the records of tuning in one SQLite file, durable when they are reported.

`put` returns after the record is on disk (write-ahead log, synchronous commits), so a killed
process loses only the current trial. Several processes may use one file. Equal trials are joined,
so merging is commutative. A damaged, foreign or newer file is a clear error.

>>> from plica.search.record.record import record
>>> with Database() as found:
...     found.put(record("ab12", "cpu", "{}", "blocked", costs=(1e-3,)))
...     found.put(record("ab12", "cpu", "{}", "rowed", error="wrong"))
...     found.best("ab12", "cpu").form, len(found)
('blocked', 2)
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from plica.core import Malformed
from plica.runtime.error import Diagnostic, Place, wrong_argument
from plica.search.record.record import Record, from_row, joined, to_row
from plica.search.record.source import LINES, RecordSource

SCHEMA: Final = 1  # raised when the tables mean something else
APPLICATION: Final = 0x506C6963  # how SQLite files say whose they are
MAGIC: Final = b"SQLite format 3\0"  # what every file of SQLite begins with
BUSY: Final = 60.0  # seconds to wait for another process that writes

LEFT_ALONE: Final = "Name another file; this one is left as it is."
_HINTS: Final = {
    sqlite3.SQLITE_FULL: "Make room, then run again: the records that were stored are kept.",
    sqlite3.SQLITE_IOERR: "Look at the disk: the records that were stored are kept.",
    sqlite3.SQLITE_BUSY: f"Another process has written to it for {BUSY:g} s: wait for that one.",
    sqlite3.SQLITE_CANTOPEN: "Give a file in a folder that is there and that you may write to.",
    sqlite3.SQLITE_READONLY: "Copy it to a folder that you may write to.",
}
"""What to do, by SQLite's code."""

_COLUMNS: Final = (
    "identity", "key", "target", "trace", "form", "costs", "noise", "seed", "versions", "error",
    "policy", "message", "trial",
)  # fmt: skip
_TABLE: Final = """
CREATE TABLE trial (
    identity TEXT PRIMARY KEY, key TEXT NOT NULL, target TEXT NOT NULL, trace TEXT NOT NULL,
    form TEXT NOT NULL, costs TEXT NOT NULL, noise REAL NOT NULL, seed INTEGER NOT NULL,
    versions TEXT NOT NULL, error TEXT NOT NULL, policy TEXT NOT NULL, message TEXT NOT NULL,
    trial INTEGER NOT NULL
) WITHOUT ROWID
"""
_INDEX: Final = "CREATE INDEX of_work ON trial (key, target)"
_ALL: Final = f"SELECT {', '.join(_COLUMNS)} FROM trial"
_ORDER: Final = "ORDER BY key, target, policy, seed, trial, identity"
_PUT: Final = f"INSERT OR REPLACE INTO trial VALUES ({', '.join('?' * len(_COLUMNS))})"


class Database(RecordSource):
    """The records in a file, or in memory where no path is given."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None and not isinstance(path, str | os.PathLike):
            raise wrong_argument("This is no tuning database.", "a path", path)
        self.path = None if path is None else os.fspath(path)
        self._lock = threading.RLock()
        self._fixed = self.path is not None and _is_on_fixed_disk(self.path)
        self._look()
        with self._understood():
            self._file = sqlite3.connect(
                self._name(),
                timeout=BUSY,
                isolation_level=None,
                check_same_thread=False,
                uri=self._fixed,
            )
        try:
            with self._understood():
                self._prepare()
        except Malformed:
            self._file.close()
            raise

    def _name(self) -> str | bytes:
        """The file name for SQLite; a file on a read-only file system is opened without a log."""
        if self.path is None:
            return ":memory:"
        if not self._fixed:
            return self.path
        return f"{Path(os.fsdecode(self.path)).absolute().as_uri()}?immutable=1"

    def _look(self) -> None:
        """Refuses a file that is no database: SQLite takes a short one for an empty database."""
        if self.path is not None and os.fsdecode(self.path).endswith(LINES):
            # Later readers would take it for lines.
            found = os.path.basename(os.fsdecode(self.path))
            self._refuse("Files of this name are lines of JSON.", found, "another name")
        if self.path is None or not os.path.isfile(self.path):
            return
        try:
            with open(self.path, "rb") as file:
                head = file.read(len(MAGIC))
        except OSError as error:
            self._refuse("The database cannot be read.", str(error.strerror))
        if head.startswith(b"{"):
            name = os.path.basename(os.fsdecode(self.path))
            hint = f"Take a package over first: plica records import {name} --db tune.db."
            self._refuse("The file is no database.", repr(head), suggestion=hint)
        if head and head != MAGIC:
            self._refuse("The file is no database.", repr(head))

    def put(self, record: Record) -> None:
        """Keep a record; when this returns it is on the disk."""
        self.put_all((record,))

    def put_all(self, records: Iterable[Record]) -> int:
        """Adds records, all or none of them; returns how many changed the database."""
        changed = 0
        with self._writing():
            for record in records:
                known = self.find(record.identity)
                kept = record if known is None else joined(known, record)
                if kept != known:
                    changed += 1
                    self._file.execute(_PUT, to_row(kept))
        return changed

    def find(self, identity: str) -> Record | None:
        """The record of a trial, or None."""
        with self._understood():
            row = self._file.execute(f"{_ALL} WHERE identity = ?", (identity,)).fetchone()
        return None if row is None else self._record(row)

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        """The records of some work, of some machine, or every one; run by run, in their order."""
        wanted = [(name, of) for name, of in (("key", key), ("target", target)) if of is not None]
        where = " AND ".join([f"{name} = ?" for name, _ in wanted])
        text = f"{_ALL} WHERE {where} {_ORDER}" if where else f"{_ALL} {_ORDER}"
        with self._understood():
            rows = self._file.execute(text, [of for _, of in wanted]).fetchall()
        return tuple([self._record(row) for row in rows])

    def merge(self, other: RecordSource) -> int:
        """Merges another database; returns how many records changed this one."""
        return self.put_all(other.all())

    def prune(self, key: str, target: str, keep: int) -> int:
        """Removes all but the fastest records of some work; returns how many were removed."""
        kept = {record.identity for record in self.top(key, target, keep)}
        gone = [record.identity for record in self.all(key, target) if record.identity not in kept]
        with self._writing():
            self._file.executemany("DELETE FROM trial WHERE identity = ?", [(e,) for e in gone])
        return len(gone)

    def __len__(self) -> int:
        with self._understood():
            return int(self._file.execute("SELECT count(*) FROM trial").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- the file ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        run = self._file.execute
        # Checked first: a foreign file must not even change its journal mode.
        empty = not run("SELECT count(*) FROM sqlite_master").fetchone()[0]
        owner = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if not empty and owner != APPLICATION:
            self._refuse("The file is a database, but not one of tuning records.", str(owner))
        if version > SCHEMA:
            message = "The database was written by a newer version of Plica."
            self._refuse(message, f"schema {version}", f"schema {SCHEMA}", "newer-version")
        if not self._fixed:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = FULL")
        if empty:
            self._create()
        run("SELECT 1 FROM trial LIMIT 1")

    def _create(self) -> None:
        with self._writing():
            # Another process may have been faster.
            if not self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._file.execute(_TABLE)
                self._file.execute(_INDEX)
                self._file.execute(f"PRAGMA application_id = {APPLICATION}")
                self._file.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it is done, or nothing."""
        with self._lock, self._understood():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:  # a full disk has ended it already
                    self._file.execute("ROLLBACK")
                raise

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What SQLite says of a file, as an error of ours."""
        try:
            with self._lock:
                yield
        except sqlite3.ProgrammingError:
            raise  # the database was closed: a mistake in the program that uses it
        except (sqlite3.Error, UnicodeDecodeError) as reason:  # the latter: names in the schema
            code = getattr(reason, "sqlite_errorcode", 0) & 0xFF
            self._refuse(
                "The database cannot be used.", str(reason), suggestion=_HINTS.get(code, LEFT_ALONE)
            )

    def _record(self, row: tuple[object, ...]) -> Record:
        try:
            return from_row(row)
        except Malformed as error:
            found = f"{row[0]!r}: {error.diagnostics[0].message}"[:400]
            self._refuse("A row of the database is damaged.", found)

    def _refuse(
        self,
        message: str,
        found: str,
        expected: str | None = None,
        code: str = "bad-database",
        suggestion: str = LEFT_ALONE,
    ) -> NoReturn:
        place = Place(file=self.path) if self.path else None
        raise Malformed(Diagnostic(code, message, place, expected, found, suggestion))


def _is_on_fixed_disk(path: str | bytes) -> bool:
    """Whether a file exists on a file system that is mounted read-only."""
    if not os.path.isfile(path) or not hasattr(os, "statvfs"):
        return False
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
