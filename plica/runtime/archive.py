"""Archives: the file an artefact is, a zip whose every byte is accounted for.

Members are stored uncompressed, in order, without timestamps; the comment at the end holds the
SHA-256 of everything before it. The same members give the same bytes, any edit is detected before
anything is read, and any zip tool shows the contents.

>>> packed = pack({"a.txt": b"hello"})
>>> dict(unpack(packed))
{'a.txt': b'hello'}
>>> unpack(packed.replace(b"hello", b"hullo"))  # doctest: +ELLIPSIS
Traceback (most recent call last):
plica.runtime.error.ArtefactError: The artefact is damaged: its digest is another. [bad-artefact]
  expected: sha256:...

The compile cache has its own digests: there, members are not sealed and lie at aligned offsets, so
that they can be used in place when mapped (`aligned_members`, `member_views`).

Not here: the meaning of the members (`plica.runtime.artefact`). A digest detects damage, not
malice: whoever can write an artefact can run code where it is loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from plica.runtime.error import (
    ARTEFACT,
    ArtefactError,
    Diagnostic,
    OutputError,
    Place,
    damaged,
    neighbour,
    wrong_argument,
)

FORMAT: Final = 1  # increased whenever older runtimes cannot read the format

Piece: TypeAlias = bytes | memoryview
P = TypeVar("P")

_SEAL: Final = re.compile(rb"plica artefact (\d{1,6}) sha256:([0-9a-f]{64})")
_TAIL: Final = 96  # the seal is shorter
_MAX_MEMBERS: Final = 1 << 16
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_ALIGNED_HEADER: Final = b"plica kept\n"
_SIZE: Final = struct.Struct("<Q")


def pack(members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive."""
    seal = f"plica artefact {FORMAT} sha256:".encode()
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = seal + b"0" * 64
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.file_size = len(data)
            with archive.open(info, "w") as member:
                member.write(data)
    *body, _ = [sink.written[at] for at in sorted(sink.written)]  # the comment is the last
    whole = hashlib.sha256()
    for each in body:
        whole.update(each)
    return b"".join([*body, seal + whole.hexdigest().encode()])


def aligned_members(members: Mapping[str, Sequence[Piece]], align: int = 1) -> list[Piece]:
    """Members behind a table of their names and sizes, each at a multiple of `align` bytes.

    Nothing is copied and there is no digest: the caller checks for damage.

    >>> bytes(member_views(b"".join(aligned_members({"a": (b"hel", b"lo"), "b": (b"!",)}, 8)))["a"])
    b'hello'
    """
    sizes = [(name, sum(map(len, parts))) for name, parts in members.items()]
    table = json.dumps([FORMAT, align, sizes]).encode()
    found: list[Piece] = [_ALIGNED_HEADER, _SIZE.pack(len(table)), table]
    end = sum(map(len, found))
    for (_, size), parts in zip(sizes, members.values(), strict=True):
        found += [bytes(-end % align), *parts]
        end += -end % align + size
    return found


class _Sink(io.RawIOBase):
    """A file that keeps written objects without copying; rewritten ranges are replaced."""

    def __init__(self) -> None:
        self.written: dict[int, Piece] = {}
        self._at = 0

    def write(self, data: Any, /) -> int:  # Any: bytes, or a view of some
        if size := len(data):
            self.written[self._at] = data
        self._at += size
        return size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset
        return offset

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _Source(io.RawIOBase):
    """Bytes as a file; only what is read is copied."""

    def __init__(self, data: Piece) -> None:
        self._data = memoryview(data)
        self._at = 0

    def readinto(self, room: Any, /) -> int:  # Any: what can be written to
        part = self._data[self._at : self._at + len(room)]
        room[: len(part)] = part
        self._at += len(part)
        return len(part)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = max(0, offset + (0, self._at, len(self._data))[whence])
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def unpack(data: bytes) -> dict[str, bytes]:
    """The members of an archive, after its digest was checked."""
    match = _seal(data)
    body = memoryview(data)[: len(data) - (match.end() - match.start())]
    digest, expected = hashlib.sha256(body).hexdigest(), match[2].decode()
    if digest != expected:
        message = "The artefact is damaged: its digest is another."
        raise damaged(message, f"sha256:{digest}", f"sha256:{expected}")
    check_format(int(match[1]))
    return _members(data)


def member_views(data: Piece) -> dict[str, memoryview]:
    """Views of the members that `aligned_members` wrote; the caller has checked the digest."""
    whole, at = memoryview(data), len(_ALIGNED_HEADER)
    if bytes(whole[:at]) != _ALIGNED_HEADER or len(whole) < at + _SIZE.size:
        raise damaged("The artefact is not laid out as one that is kept.")
    (length,) = _SIZE.unpack_from(whole, at)
    end = at + _SIZE.size + length
    try:
        table = json.loads(bytes(whole[at + _SIZE.size : end]))
    except (ValueError, RecursionError) as error:
        raise damaged("The table of a kept artefact cannot be read.", str(error)) from error
    match table:
        case [int(number), int(align), [*sizes]] if align > 0:
            check_format(number)
        case _:
            raise damaged("The table of a kept artefact is none.")
    found = {}
    for each in sizes:
        match each:
            case [str(name), int(size)] if size >= 0:
                start = end + -end % align
                end = start + size
                found[name] = whole[start:end]
            case _:
                raise damaged("A row of the table of a kept artefact is none.", str(each))
    if end != len(whole) or len(found) != len(sizes):
        raise damaged("A kept artefact is longer or shorter than its table says.")
    return found


def is_sealed(data: bytes) -> bool:
    """Whether something ends as an artefact does."""
    match = _SEAL.search(data[-_TAIL:])
    return match is not None and match.end() == len(data[-_TAIL:])


def _seal(data: Piece) -> re.Match[bytes]:
    tail = bytes(data[-_TAIL:])
    match = _SEAL.search(tail)
    if match is None or match.end() != len(tail):
        message = "The file is no artefact of Plica, or its end is missing."
        raise damaged(message, f"{len(data)} bytes without a seal", "a seal at the end of the file")
    return match


def check_format(number: int, newest: int = FORMAT) -> None:
    """Refuse a format that this version cannot read."""
    if not 0 < number <= newest:
        message = "The artefact was written by a newer version of Plica."
        hint = "Use a newer plica to load it, or compile the model again."
        expected, was = f"format {newest}", f"format {number}"
        raise ArtefactError(Diagnostic("newer-version", message, None, expected, was, hint))


def check_members(members: Mapping[str, Piece], digests: Mapping[str, object], name: str) -> None:
    """Refuse members whose digests are not those in the manifest, which is the member `name`."""
    here = {n: hashlib.sha256(data).hexdigest() for n, data in members.items() if n != name}
    if digests != here:
        message = "The members of the artefact are not those its manifest lists."
        differ = sorted([n for n in {*here, *digests} if here.get(n) != digests.get(n)])
        raise damaged(message, f"another {', '.join(differ[:8])}", f"the digests in {name}")


def _members(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BufferedReader(_Source(data))) as archive:
            infos = archive.infolist()
            if len(infos) > _MAX_MEMBERS or any(
                zip_info.compress_type != zipfile.ZIP_STORED or zip_info.file_size > len(data)
                for zip_info in infos
            ):
                raise damaged("The artefact has members that no artefact has.")
            members = {zip_info.filename: archive.read(zip_info) for zip_info in infos}
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError) as error:
        raise damaged("The artefact is no readable zip file.", str(error)) from error
    if len(members) != len(infos):
        raise damaged("The artefact has two members of one name.")
    return members


MAX_NAME_BYTES: Final = 255  # bytes of the name of a file, at most


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse what names no file."""
    if not isinstance(path, str | os.PathLike):
        raise wrong_argument("This is no path.", "the path of a file", path)


def destination(path: str | os.PathLike[str]) -> Path:
    """The file that would be written, links followed; refuse where none can be.

    A device, a pipe or a folder is never replaced.  Asked before long work, this saves the work.
    """
    check_path(path)
    name = os.fsencode(os.path.basename(path))
    if len(name) > MAX_NAME_BYTES or b"\0" in os.fsencode(path):
        why = (
            "Its name is too long." if len(name) > MAX_NAME_BYTES else "Its name has a null in it."
        )
        raise _unwritable(path, why, "Give another name.")
    # Those of os.path say no where a path is too long to be asked about; writing then says why.
    try:
        target = Path(os.path.realpath(path))
    except OSError as error:
        why = "The current folder is no longer there."
        raise _unwritable(path, why, "Go to another folder, or give a whole path.") from error
    if os.path.islink(target):
        raise _unwritable(path, "It is a link that leads to itself.", "Give the file itself.")
    if os.path.exists(target) and not os.path.isfile(target):
        kind = "a folder" if os.path.isdir(target) else "a device, a pipe or a socket"
        raise _unwritable(path, f"It is {kind}.", "Give the name of a plain file.")
    folder = target.parent
    if not os.path.isdir(folder):
        raise _unwritable(path, f"There is no folder {str(folder)!r}.", "Make the folder first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "Give a place in a folder of your own."
        raise _unwritable(path, f"Nobody lets you write into {str(folder)!r}.", hint)
    return target


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file atomically."""
    target = destination(path)
    name = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
        Path(name).replace(target)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            hint = "Give another place, or make room."
            raise _unwritable(path, f"{error.strerror}.", hint) from error
        raise


def _unwritable(path: str | os.PathLike[str], why: str, hint: str) -> OutputError:
    message, place = f"The file cannot be written. {why}", Place(file=os.fspath(path))
    return OutputError(Diagnostic("cannot-write", message, place, suggestion=hint))


def read(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The members of an archive in a file."""
    check_path(path)
    place = Place(file=os.fspath(path))
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message, hint = "The artefact cannot be read.", neighbour(Path(path), ".plica")
        problem = Diagnostic("bad-artefact", message, place, ARTEFACT, error.strerror, hint)
        raise ArtefactError(problem) from error
    try:
        return unpack(data)
    except ArtefactError as error:
        (problem,) = error.diagnostics
        hint = problem.suggestion
        if os.fspath(path).endswith((".onnx", ".py")):
            hint = f"It looks like a model: plica compile {path} -o M.plica makes an artefact."
        raise ArtefactError(replace(problem, place=place, suggestion=hint)) from None


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[dict[str, bytes]]:
    """The members of an archive in a file, which is the place of what is refused of them."""
    members = read(path)
    try:
        yield members
    except ArtefactError as error:
        raise error.placed(Place(file=os.fspath(path))) from error
