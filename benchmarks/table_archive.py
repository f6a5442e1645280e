"""An archive of tables of measured candidates: one compressed file of named groups.

    header      JSON: groups of tables with their names and sizes, and the bytes of each stream
    streams     costs, owners, points; of features: rows, counts, patterns, labels, values

Features of a table are a matrix of float16, a row for each store of a candidate.  Equal rows are
stored once (`rows`: which one each is).  A column is a list of distinct values, in the order in
which they come, and a label for each row; columns that part the rows alike share their labels
(`patterns`: which labels each column has).  Nothing is lost.

>>> import numpy as np
>>> matrix = np.array([[1, 5, 2], [1, 6, 3], [1, 5, 2]], np.float16)
>>> streams = {name: [] for name in STREAMS}
>>> sizes = encoded(matrix, streams)
>>> readers = {name: Reader(b"".join(parts)) for name, parts in streams.items()}
>>> bool((decoded(sizes, readers) == matrix).all()), [len(part) for part in streams["labels"]]
(True, [2, 2])
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from plica.runtime import archive

PATH: Final = Path(__file__).with_name("tables.xz")
STREAMS: Final = ("costs", "owners", "points", "rows", "counts", "patterns", "labels", "values")
MAX_BYTE_LABELS: Final = 256

_FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]

Array = np.ndarray[Any, Any]


class StoredTable(NamedTuple):
    """A table as it is stored: features in float16, seconds in float32."""

    name: str
    rows: Array
    owner: Array
    costs: Array
    points: tuple[str, ...]


class Sizes(NamedTuple):
    """The sizes of a matrix of features: all rows, columns, distinct rows."""

    rows: int
    width: int
    distinct: int


class Reader:
    """A stream that is read from its beginning."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def take(self, count: int, dtype: Any) -> Array:
        """The next numbers."""
        found = np.frombuffer(self.content, dtype, count, self.at)
        self.at += found.nbytes
        return found


def _in_order(of: Array, axis: int | None = None) -> tuple[Array, Array]:
    """What is distinct, in the order in which it first comes, and which of it each is."""
    distinct, first, label = np.unique(of, return_index=True, return_inverse=True, axis=axis)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return distinct[order], place[label.reshape(-1)]


def _label_dtype(count: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if count <= MAX_BYTE_LABELS else np.uint16


def encoded(matrix: Array, streams: dict[str, list[bytes]]) -> Sizes:
    """Add a matrix of features to the streams."""
    bits = np.ascontiguousarray(matrix, np.float16).view(np.uint16)
    distinct, which = _in_order(bits, axis=0)
    streams["rows"].append(which.astype(np.uint16).tobytes())
    known: dict[bytes, int] = {}
    patterns, counts = [], []
    for column in distinct.T:
        values, labels = _in_order(column)
        written = labels.astype(_label_dtype(len(values))).tobytes()
        if written not in known:
            known[written] = len(known)
            streams["labels"].append(written)
        patterns.append(known[written])
        counts.append(len(values))
        streams["values"].append(values.astype(np.uint16).tobytes())
    streams["patterns"].append(np.array(patterns, np.uint16).tobytes())
    streams["counts"].append(np.array(counts, np.uint16).tobytes())
    return Sizes(len(matrix), matrix.shape[1], len(distinct))


def decoded(sizes: Sizes, readers: dict[str, Reader]) -> Array:
    """The next matrix of features of the streams."""
    rows, width, distinct = sizes
    which = readers["rows"].take(rows, np.uint16)
    patterns = readers["patterns"].take(width, np.uint16)
    counts = readers["counts"].take(width, np.uint16)
    known: list[Array] = []
    found = np.empty((distinct, width), np.uint16)
    for at, (pattern, count) in enumerate(zip(patterns, counts, strict=True)):
        if pattern == len(known):
            known.append(readers["labels"].take(distinct, _label_dtype(int(count))))
        found[:, at] = readers["values"].take(int(count), np.uint16)[known[pattern]]
    return found[which].view(np.float16)


def write(groups: Mapping[str, Sequence[StoredTable]], path: Path = PATH) -> None:
    """Write all groups as one file, as a whole or not at all."""
    streams: dict[str, list[bytes]] = {name: [] for name in STREAMS}
    told: dict[str, list[Any]] = {}
    for group, tables in groups.items():
        told[group] = []
        for table in tables:
            points = json.dumps(table.points).encode()
            streams["points"].append(points)
            streams["costs"].append(table.costs.astype(np.float32).tobytes())
            streams["owners"].append(table.owner.astype(np.int16).tobytes())
            sizes = encoded(table.rows, streams)
            told[group].append([table.name, len(table.costs), len(points), *sizes])
    whole = {name: b"".join(parts) for name, parts in streams.items()}
    header = {"groups": told, "streams": {name: len(each) for name, each in whole.items()}}
    text = json.dumps(header).encode()
    content = b"".join([len(text).to_bytes(8, "little"), text, *whole.values()])
    archive.write(path, lzma.compress(content, filters=_FILTERS))


def read(path: Path = PATH) -> dict[str, list[StoredTable]]:
    """All groups of a file."""
    content = lzma.decompress(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    readers = {}
    for name in STREAMS:
        end = start + header["streams"][name]
        readers[name] = Reader(content[start:end])
        start = end
    return {
        group: [_table(told, readers) for told in tables]
        for group, tables in header["groups"].items()
    }


def _table(told: Sequence[Any], readers: dict[str, Reader]) -> StoredTable:
    name, candidates, length, *sizes = told
    points = json.loads(readers["points"].take(length, np.uint8).tobytes())
    costs = readers["costs"].take(candidates, np.float32)
    owner = readers["owners"].take(sizes[0], np.int16)
    return StoredTable(name, decoded(Sizes(*sizes), readers), owner, costs, tuple(points))
