"""Databases of text: a row of JSON for each record, one a line.

A record is appended and synchronised before `put` returns; duplicates are joined on reading. An
unterminated last line is a trial that was running when a process died, and is ignored; any other
invalid line is a clear error.

>>> from tempfile import TemporaryDirectory
>>> from plica.search.record.record import record
>>> with TemporaryDirectory() as folder:
...     found = JsonDatabase(Path(folder) / "tune.jsonl")
...     found.put(record("ab12", "cpu", "{}", "blocked", costs=(1e-3,)))
...     JsonDatabase(found.path).best("ab12", "cpu").form
'blocked'
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from plica.core import Malformed
from plica.runtime.error import Diagnostic, Place
from plica.search.record.record import Record, from_row, to_row
from plica.search.record.source import RecordSource, merged

LONGEST_LINE: Final = 1 << 23


class JsonDatabase(RecordSource):
    """The records in a file of lines."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def put(self, record: Record) -> None:
        """Keep a record; when this returns it is on the disk."""
        self.put_all((record,))

    def put_all(self, records: Iterable[Record]) -> None:
        """Keep records, in order."""
        lines = "".join([f"{json.dumps(to_row(record))}\n" for record in records])
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines if whole else f"\n{lines}")
            file.flush()
            os.fsync(file.fileno())

    def all(self, key: str | None = None, target: str | None = None) -> tuple[Record, ...]:
        records = [self._record(line, number) for number, line in enumerate(self._lines(), 1)]
        wanted = [e for e in records if e and key in (None, e.key) and target in (None, e.target)]
        return merged(wanted)

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        return [each for each in text.split("\n")[:-1] if each]

    def _record(self, line: str, number: int) -> Record | None:
        try:
            row = json.loads(line) if len(line) <= LONGEST_LINE else None
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, list) and len(row) == _FIELDS:
            try:
                return from_row(tuple(row))
            except Malformed as error:
                found = error.diagnostics[0].message
        elif row is None and not line.endswith("]"):
            return None  # somebody died while it was written, and another went on
        else:
            found = line[:80]
        message, place = "A line of the file is no tuning record.", Place(str(self.path), number)
        raise Malformed(Diagnostic("bad-database", message, place, "a row of JSON", found))


_FIELDS: Final = 13  # of a row: its identity, and the fields of a record
