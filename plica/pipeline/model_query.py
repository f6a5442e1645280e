"""Model queries: a model as bytes, and the keys that it and the options of a compilation lead to.

The elements of large tensors are hashed separately: models that differ only in them have the same
operators.

>>> one, other = (model_bytes(bytes([8, each])) for each in (7, 8))
>>> one.digest == other.digest, one.tensors
(False, ())
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from io import BufferedReader, BytesIO
from time import time_ns
from typing import Any, Final, TypeAlias

from plica.runtime.late import lazy_imports
from plica.runtime.store import ArtefactStore, is_key, key_of, user_store

with lazy_imports(__name__):
    from plica.pipeline.compiler_stamp import compiler_stamp

_PLAIN: Final = (str, int, bool, type(None))
_ABSENT: Final = ("database", "passes", "schedules", "externs", "donate")
"""Options without a textual form; requests that use one take the full path."""

_CHUNK: Final = 1 << 20
_EXTERNAL_MARK: Final = b"location"  # the marker, in a model's bytes, of a tensor in another file


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The elements of a large tensor among the bytes of a model: their digest and place."""

    digest: str
    start: int
    size: int


Scanned: TypeAlias = tuple[str, tuple[StoredTensor, ...]]
"""The digest of a model without the elements of large tensors, and these."""

FileState: TypeAlias = tuple[int, int, int, int, int]
"""Size, times of the last changes in nanoseconds, inode and device of a file."""


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """A model as bytes: the digest of all, the digest without the elements of large tensors, these
    elements, and a stamp that detects changes of the file."""

    source: Any  # Any: a path, bytes or a model of ONNX's
    structure: str
    tensors: tuple[StoredTensor, ...]
    state: object

    @property
    def digest(self) -> str:
        """The digest of all bytes."""
        return key_of("model", self.structure, *[tensor.digest for tensor in self.tensors])

    def elements(self, of: StoredTensor) -> bytes | None:
        """The bytes of a tensor, or None if the model has changed since."""
        with _opened(self.source) as file:
            file.seek(of.start)
            data = file.read(of.size)
        return data if sha256(data).hexdigest() == of.digest else None


@dataclass(frozen=True, slots=True)
class ModelQuery:
    """A model and options that can be looked up, and the key of its entry."""

    model: ModelBytes
    options: Mapping[str, Any]  # Any: as `plica.compile` takes them
    key: str
    like: str  # the key shared by all models with these operators
    store: ArtefactStore


def query_of(source: Any, options: Mapping[str, Any]) -> ModelQuery | None:  # Any: as above
    """The query for a request, or None unless it is a model file with plain options and a store
    exists."""
    plain = all(_is_plain(value) for value in options.values())
    if not plain or any(options[name] for name in _ABSENT) or not options["cache"]:
        return None
    if options["validate"] or options["background"] or not _is_processor(options["target"]):
        return None
    store = user_store()
    model = None if store is None else model_bytes(source, store)
    if store is None or model is None:
        return None
    asked = repr(sorted(options.items())), compiler_stamp()
    key, like = key_of("model-file", model.digest, *asked), key_of("like", model.structure, *asked)
    return ModelQuery(model, options, key, like, store)


# --- bytes of a model -----------------------------------------------------------------------------


def model_bytes(
    source: Any,  # Any: whatever `plica.compile` takes
    store: ArtefactStore | None = None,
) -> ModelBytes | None:
    """The bytes of a model, or None if the argument is something else or unreadable.

    With a store, the digests of a large file are read once for each state of the file.
    """
    state = bytes_state(source)
    if is_path(source):
        if not os.fspath(source).endswith(".onnx") or state is None:
            return None
        try:
            if store is not None and state[0] >= _KEPT_SCAN:
                return ModelBytes(source, *_kept_scan(source, state, store), state)
            return ModelBytes(source, *_scanned(source), state)
        except OSError:
            return None
    if isinstance(source, bytes) or hasattr(source, "opset_import"):
        return ModelBytes(source, *_scanned(source), state)
    return None


def _opened(source: Any) -> BufferedReader | BytesIO:  # as above
    """The bytes of a model as a file."""
    if is_path(source):
        return open(source, "rb")
    return BytesIO(source if isinstance(source, bytes) else _serialised(source))


def _scanned(source: Any) -> Scanned:  # as above
    """The digest of a model without the elements of large tensors, and these.

    They lie in fields of messages in one another, as Protocol Buffers write them; what does not is
    one digest.
    """
    with _opened(source) as file:
        try:
            return _Scan(file).whole()
        except ValueError:
            file.seek(0)
            return file_digest(file, "sha256").hexdigest(), ()


def _kept_scan(source: Any, state: FileState, store: ArtefactStore) -> Scanned:  # Any: a path
    """The digests of a file, from the store where they were computed for this state of it.

    A file modified less than two seconds ago may change again within one timestamp, so its digests
    are not cached.
    """
    key = key_of("scan", os.path.abspath(source), str(state))
    told = store.found(key, lambda: _scan_text(_scanned(source)), "the digests of a model file")
    if told is not None and (kept := _scan_of(told)) is not None:
        return kept
    scanned = _scanned(source)
    if time_ns() - max(state[1:3]) > _SETTLED and bytes_state(source) == state:
        store.put(key, _scan_text(scanned))
    return scanned


def _scan_text(of: Scanned) -> bytes:
    return json.dumps([of[0], [[each.digest, each.start, each.size] for each in of[1]]]).encode()


def _scan_of(told: bytes) -> Scanned | None:
    """Digests as `_scan_text` writes them; None for anything else."""
    try:
        structure, rows = json.loads(told)
        tensors = tuple([StoredTensor(digest, start, size) for digest, start, size in rows])
        keys = [structure, *[tensor.digest for tensor in tensors]]
        good = all(isinstance(key, str) and is_key(key) for key in keys)
        good = good and all(type(n) is int for each in tensors for n in (each.start, each.size))
    except (ValueError, TypeError, RecursionError):
        return None
    return (structure, tensors) if good else None


_KEPT_SCAN: Final = 1 << 20  # the file size from which digests are cached, in bytes
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a file that changes again gets another time on any file system."""
_PATH: Final = (7, 5, 9)
"""The fields that lead to the elements of a tensor: `graph`, `initializer`, `raw_data`."""
_LARGE_TENSOR_BYTES: Final = 4096
"""Bytes of a tensor from which on it is looked for apart from its model
(`plica.ir.graph.provenance.STORED`, which is not imported here)."""


class _Scan:
    """A pass over the bytes of a model."""

    def __init__(self, file: BufferedReader | BytesIO) -> None:
        self.file = file
        self.at = 0
        self.structure = sha256()
        self.tensors: list[StoredTensor] = []
        self.room = memoryview(bytearray(_CHUNK))

    def whole(self) -> Scanned:
        """What `_scanned` says."""
        end = self.file.seek(0, os.SEEK_END)
        self.file.seek(0)
        self._message(end, _PATH)
        return self.structure.hexdigest(), tuple(self.tensors)

    def _message(self, end: int, path: Sequence[int]) -> None:
        """The fields of a message that ends there."""
        while self.at < end:
            field, kind = divmod(self._number(), 8)
            if kind == 0:
                self._number()
            elif kind in (1, 5):
                self._hash(self.structure, 8 if kind == 1 else 4, end)
            elif kind != 2:
                raise ValueError(kind)
            elif (size := self._number()) > end - self.at:
                raise ValueError(size)
            elif field != path[0] or (len(path) == 1 and size < _LARGE_TENSOR_BYTES):
                self._hash(self.structure, size, end)
            elif len(path) > 1:
                self._message(self.at + size, path[1:])
            else:
                start, elements = self.at, sha256()
                self._hash(elements, size, end)
                self.tensors.append(StoredTensor(elements.hexdigest(), start, size))
        if self.at > end:
            raise ValueError(end)

    def _number(self) -> int:
        """A number of seven bits in a byte, the lowest first."""
        found = shift = 0
        while data := self.file.read(1):
            self.at += 1
            self.structure.update(data)
            found |= (data[0] & 127) << shift
            shift += 7
            if data[0] < 128:
                return found
        raise ValueError(self.at)

    def _hash(self, into: Any, size: int, end: int) -> None:  # Any: hashlib has no name for it
        if size > end - self.at:
            raise ValueError(size)
        self.at += size
        while size:
            count = self.file.readinto(self.room[: min(size, _CHUNK)])
            if not count:
                raise ValueError(size)
            into.update(self.room[:count])
            size -= count


def is_whole(source: Any) -> bool:  # as above
    """Whether all of a model is in its own bytes."""
    if is_path(source):
        end = b""
        with open(source, "rb") as file:
            while data := file.read(_CHUNK):
                # CPython's `rfind` is twice as fast as `find` when nothing matches.
                if (
                    _EXTERNAL_MARK in end + data[: len(_EXTERNAL_MARK)]
                    or data.rfind(_EXTERNAL_MARK) >= 0
                ):
                    return False
                end = data[-len(_EXTERNAL_MARK) :]
        return True
    return _EXTERNAL_MARK not in (source if isinstance(source, bytes) else _serialised(source))


def _serialised(model: Any) -> bytes:  # Any: a model of ONNX's, which is not imported here
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def bytes_state(source: Any) -> FileState | None:  # as above
    """What tells that a file is another now."""
    if not is_path(source):
        return None
    try:
        found = os.stat(source)
    except (OSError, ValueError):  # a name that no file can have is refused by who reads it
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def is_path(source: object) -> bool:
    """Whether a model is named by its file."""
    return isinstance(source, str | os.PathLike)


def _is_processor(target: object) -> bool:
    return isinstance(target, str) and target.startswith("cpu")


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, _PLAIN)
