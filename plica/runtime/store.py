"""The store: compiled results on disk, by the digest of their inputs.

Entries are written atomically, also by concurrent writers; damaged or misplaced entries are
detected by digest, dropped and recomputed. The least recently used entries are evicted beyond the
size limit. Long pieces of an entry may be separate entries, keyed by their content and shared.
Nothing depends on the store: if it is unusable, everything is recomputed.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     store = ArtefactStore(Path(folder))
...     store.put(key_of("text", "target"), b"code")
...     store.get(key_of("text", "target")), store.get(key_of("other"))
(b'code', None)

A digest detects damage, but not a wrong result stored under a key. So hits are audited: a seeded
share (1 of 256) is recomputed and compared byte for byte; a difference is reported, replaced and
not used.

`PLICA_CACHE` names another folder, or is `off`; `PLICA_CACHE_BYTES` is the size limit;
`PLICA_CACHE_AUDIT` is the share of hits to audit, from 0 to 1, and `PLICA_CACHE_SEED` the seed that
selects them (default: the process id). Code is executed from here, so the folder is private to its
owner: it is created so, and a folder that belongs to or is writable by someone else is ignored with
a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Final, TypeVar

from plica.runtime.archive import Piece
from plica.runtime.artefact import aligned_array
from plica.runtime.error import Diagnostic, Place, setting

LIMIT: Final = 2 << 30  # the default size limit in bytes
AUDITED: Final = 1 / 256
"""The share of hits that is made again and compared, if nothing else is said."""

P = TypeVar("P", bound=Piece)

_MAGIC: Final = b"plica3\n"
_HEAD: Final = len(_MAGIC) + 32
_WRITES_PER_SWEEP: Final = (
    64  # how many entries are written between two looks at the size of it all
)
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_COUNT: Final = r"[0-9]{1,18}"
_SHARE: Final = r"0?\.[0-9]{1,18}|[01](\.0{1,18})?"
_SWEPT_FRACTION: Final = 0.8  # how much of the limit is left then
_MIN_PIECE_BYTES: Final = 1 << 16  # bytes of a piece from which on it may be an entry of its own
_SIZE: Final = struct.Struct("<Q")
_MIN_CRC_BYTES: Final = 1 << 16  # bytes of an entry from which on it is hashed by its CRC-32


def key_of(*parts: str | bytes) -> str:
    """An injective digest of several parts."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()


def is_key(of: str) -> bool:
    """Whether a text is a digest as `key_of` gives it.

    >>> is_key(key_of("text")), is_key("../text")
    (True, False)
    """
    return _KEY.fullmatch(of) is not None


def _head(key: str, told: bytes) -> bytes:
    """The head of an entry: a digest that includes the key, so that no entry passes for another."""
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + told).digest()


def _told(data: Sequence[Piece]) -> bytes:
    """The bytes that represent an entry in its digest: itself, or its CRC-32 if it is long.

    Most bytes of an entry are weights, and every warm build reads them all: SHA-256 would take
    seven times as long, and adds no protection against malice, because whoever writes an entry
    writes its digest. A CRC-32 detects every burst of up to 32 bits, and other damage with
    probability 1 - 2**-32.
    """
    total = sum([memoryview(each).nbytes for each in data])
    if total <= _MIN_CRC_BYTES:
        return b"".join(data)
    crc = 0
    for piece in data:
        crc = zlib.crc32(piece, crc)
    return total.to_bytes(8, "little") + crc.to_bytes(4, "little")


class ArtefactStore:
    """Bytes by key, in a folder that other processes may use at the same time."""

    def __init__(
        self, folder: Path, limit: int = LIMIT, audited: float = AUDITED, seed: int = 0
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.audited = audited
        self.seed = seed
        self.wrong: list[str] = []
        """The keys of entries that failed an audit."""
        self._hits = 0
        self._written = 0
        self._warned = False

    def found(self, key: str, make: Callable[[], bytes], what: str) -> bytes | None:
        """The entry of a key, or None; a share of hits is audited.

        An entry that differs from `make` is reported, replaced, and not returned.
        """
        data = self.get(key)
        if data is None or not self._is_audited(key):
            return data
        again = make()
        if self._is_right(key, data, again, what):
            return data
        self.put(key, again)
        return again

    def found_apart(self, key: str, make: Callable[[], list[Piece]], what: str) -> Piece | None:
        """The entry of a key with separate pieces, in writable memory aligned to `ALIGNMENT`, so
        that it can be used in place. Audited like `found`."""
        data = self._joined(key)
        if data is None or not self._is_audited(key):
            return data
        pieces = make()
        if self._is_right(key, data, again := b"".join(pieces), what):
            return data
        self.put_apart(key, *pieces)
        return again

    def _joined(self, key: str) -> memoryview | None:
        """The joined pieces of an entry, or None if one is missing or there is no table."""
        if (told := self.get(key)) is None or (rows := _table(told)) is None:
            return None
        room = aligned_array(sum([size for size, _ in rows])).data
        at, rest = 0, memoryview(told)[_SIZE.size + _SIZE.unpack_from(told)[0] :]
        for size, name in rows:
            place = room[at : at + size]
            if not name:
                if len(rest) < size:
                    return None
                place[:], rest = rest[:size], rest[size:]
            elif self._read_by(name, partial(_read_into, place)) is None:
                return None
            at += size
        return room

    def put_apart(self, key: str, *data: Piece) -> None:
        """Stores an entry whose long pieces are separate entries, keyed by content, so that common
        pieces are stored once.

        An existing piece is compared: a CRC detects damage, not malice, and models may come from
        others.
        """
        rows: list[tuple[int, str]] = []
        short: list[Piece] = []
        for each in filter(len, data):
            size, name = len(each), ""
            if size < _MIN_PIECE_BYTES:
                short.append(each)
            else:
                name = self._put_piece(each)
            rows.append((size, name))
        table = json.dumps(rows).encode()
        self.put(key, _SIZE.pack(len(table)), table, *short)

    def put_like(self, key: str, like: str, changed: Mapping[int, Piece]) -> bool:
        """Stores an entry like another one with separate pieces, except for some pieces by number;
        returns whether that is possible."""
        if (told := self.get(like)) is None or (rows := _table(told)) is None:
            return False
        if not all(0 <= number < len(rows) for number in changed):
            return False
        rest = memoryview(told)[_SIZE.size + _SIZE.unpack_from(told)[0] :]
        short: list[Piece] = []
        for number, (size, name) in enumerate(rows):
            old = rest[: 0 if name else size]
            rest = rest[len(old) :]
            new = changed.get(number, old)
            if number in changed and len(new) != size:
                return False
            if not name:
                short.append(new)
            elif number in changed:
                rows[number] = (size, self._put_piece(new))
        table = json.dumps(rows).encode()
        self.put(key, _SIZE.pack(len(table)), table, *short)
        return True

    def _put_piece(self, data: Piece) -> str:
        """The key of the entry of a piece, written if missing."""
        told = _told((data,))
        name = key_of("piece", told)
        try:
            if _holds(self._path(name), data):
                os.utime(self._path(name))  # used now
                return name
            name = key_of("piece", told, hashlib.sha256(data).digest())
        except OSError:
            pass  # there is none
        self._write(name, _head(name, told), (data,))
        return name

    def _is_right(self, key: str, data: Piece, again: bytes, what: str) -> bool:
        """Whether an entry equals its recomputation; reports a difference."""
        if again == data:
            return True
        self.wrong.append(key)
        told = Diagnostic(
            "wrong-entry",
            f"An entry of the store is not {what} that it is kept for; it was made again.",
            Place(file=str(self._path(key))),
            f"{len(again)} bytes, {key_of(again)[:16]}",
            f"{len(data)} bytes, {key_of(bytes(data))[:16]}",
            "Whoever wrote it may have written others: remove the folder.",
        )
        warnings.warn(str(told), RuntimeWarning, stacklevel=2)
        return False

    def _is_audited(self, key: str) -> bool:
        """Whether this hit is made again: by its key, its number and the seed."""
        self._hits += 1
        drawn = int(key_of(key, str(self._hits), str(self.seed))[:8], 16)
        return drawn < self.audited * (1 << 32)

    def get(self, key: str) -> bytes | None:
        """The entry of a key, or None if it is missing or damaged."""
        return self._read_by(key, _read)

    def _read_by(self, key: str, read: Callable[[Path], tuple[bytes, P]]) -> P | None:
        if not self.is_safe():
            return None
        path = self._path(key)
        try:
            head, data = read(path)
            if head != _head(key, _told((data,))):
                path.unlink(missing_ok=True)
                _tell_damage(path)
                return None
            os.utime(path)  # used now
        except OSError:
            return None
        return data

    def drop(self, key: str) -> None:
        """Keep nothing under a key."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def put(self, key: str, *data: Piece) -> None:
        """Keep something under a key, given in one piece or several."""
        self._write(key, _head(key, _told(data)), data)

    def _write(self, key: str, head: bytes, data: Sequence[Piece]) -> None:
        path = self._path(key)
        try:
            self._make_folder()
            if not self.is_safe():
                return
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(head)
                    file.writelines(data)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise
            if self._written % _WRITES_PER_SWEEP == 0:
                self.sweep()
            self._written += 1
        except OSError as error:  # a full disk, a folder of somebody else: the entry is not kept
            self._tell_unwritable(error)

    def _tell_unwritable(self, error: OSError) -> None:
        """Warns once that nothing can be stored."""
        if self._warned:
            return
        self._warned = True
        told = Diagnostic(
            "unwritable-store",
            "The store cannot be written to: what is compiled is not kept.",
            Place(file=str(self.folder)),
            found=error.strerror or str(error),
            suggestion="Make room, or name another folder in PLICA_CACHE (off: none is used).",
        )
        warnings.warn(str(told), RuntimeWarning, stacklevel=4)

    def is_safe(self) -> bool:
        """Whether nobody else can have written code here; warns once otherwise."""
        try:
            status = self.folder.stat()
        except OSError:
            return True  # there is nothing to read yet
        others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if _is_own(status) and not others:
            return True
        if not self._warned:
            self._warned = True
            found = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
            told = Diagnostic(
                "unsafe-store",
                "The store is not used: somebody else may put code there.",
                Place(file=str(self.folder)),
                "a folder of this user that no one else may write to",
                found,
                "Name another folder in PLICA_CACHE, or PLICA_CACHE=off for none.",
            )
            warnings.warn(str(told), RuntimeWarning, stacklevel=3)
        return False

    def _make_folder(self) -> None:
        """The folder, for its owner alone whatever the umask says."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            return  # whoever made it, what it is like is looked at
        self.folder.chmod(0o700)

    def sweep(self) -> None:
        """Evicts the least recently used entries beyond the size limit."""
        found = self._entries()
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in sorted(found):
            if total <= self.limit * _SWEPT_FRACTION:
                break
            path.unlink(missing_ok=True)
            total -= size

    def size(self) -> tuple[int, int]:
        """The number of entries and their total bytes."""
        found = self._entries()
        return len(found), sum(size for _, size, _ in found)

    def _entries(self) -> list[tuple[int, int, Path]]:
        """When each entry was used, its size, and where it is."""
        found = []
        for path in self.folder.glob("*/*"):
            try:
                status = path.stat()
            except OSError:
                continue  # another process was faster
            found.append((status.st_mtime_ns, status.st_size, path))
        return found

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


def _read(path: Path) -> tuple[bytes, bytes]:
    """The head and the rest of an entry of this user's."""
    with _opened(path) as file:
        return file.read(_HEAD), file.read()


def _read_into(place: memoryview, path: Path) -> tuple[bytes, memoryview]:
    """The same, with the content read into existing memory."""
    with _opened(path) as file:
        head = file.read(_HEAD)
        size = os.fstat(file.fileno()).st_size - _HEAD
        return head, place[: file.readinto(place) if size == len(place) else 0]


def _holds(path: Path, data: Piece) -> bool:
    """Whether an existing entry has exactly this content, whatever its head."""
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size != _HEAD + len(data):
            return False
        file.seek(_HEAD)
        room = bytearray(_MIN_CRC_BYTES)
        for at in range(0, len(data), _MIN_CRC_BYTES):
            part = memoryview(data)[at : at + _MIN_CRC_BYTES]
            # The room to the left: a view would compare one element after another.
            if file.readinto(room) < len(part) or room[: len(part)] != part:
                return False
        return True


def _table(told: bytes) -> list[tuple[int, str]] | None:
    """The size of each piece of an entry, and its key if it is separate."""
    if len(told) < _SIZE.size:
        return None
    try:
        rows = json.loads(told[_SIZE.size :][: _SIZE.unpack_from(told)[0]])
    except (ValueError, RecursionError):
        return None
    found: list[tuple[int, str]] = []
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case [int(size), str(name)] if size >= 0 and (not name or is_key(name)):
                found.append((size, name))
            case _:
                return None
    return found


def _opened(path: Path) -> BufferedReader:
    """Opens a regular file of this user; never blocks on other kinds."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or not _is_own(status):
        os.close(handle)
        raise OSError(f"{path} is no file of this user's.")
    return os.fdopen(handle, "rb")


def _tell_damage(path: Path) -> None:
    told = Diagnostic(
        "damaged-entry",
        "An entry of the store is damaged; what it held is made again.",
        Place(file=str(path)),
        suggestion="If this comes again, look at the disk, or name another folder in PLICA_CACHE.",
    )
    warnings.warn(str(told), RuntimeWarning, stacklevel=3)


def _is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, on systems with users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def user_store() -> ArtefactStore | None:
    """The store of this user, or None if it is turned off."""
    named = os.environ.get("PLICA_CACHE", "")
    if named.strip().lower() == "off":  # who means a folder of that name says ./OFF
        return None
    limit = setting("PLICA_CACHE_BYTES", _COUNT, "how many bytes are kept", "a number, as 9999999")
    audited = setting(
        "PLICA_CACHE_AUDIT", _SHARE, "the share of hits that is made again", "0 to 1, as 0.01"
    )
    seed = setting("PLICA_CACHE_SEED", _COUNT, "the seed of the audit", "a number, as 7")
    return ArtefactStore(
        Path(named) if named else _home() / "plica",
        int(limit) if limit else LIMIT,
        float(audited) if audited else AUDITED,
        int(seed) if seed else os.getpid(),
    )


def _home() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path("~").expanduser() / ".cache"
