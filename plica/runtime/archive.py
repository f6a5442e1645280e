"""Archives: the file an artefact is, a zip whose every byte is accounted for.

Members are stored as they are, in order, without times; the comment at the end holds the SHA-256
of everything before it.  So the same members give the same bytes, any edit is found before
anything is read, and any zip tool shows what is inside.

>>> packed = pack({"a.txt": b"hello"})
>>> dict(unpack(packed))
{'a.txt': b'hello'}
>>> unpack(packed.replace(b"hello", b"hullo"))
Traceback (most recent call last):
plica.runtime.error.ArtefactError: The artefact is damaged: its digest is another. [bad-artefact]

Not here: what the members mean (`plica.runtime.artefact`).  A digest tells damage, not malice:
whoever can write an artefact can run code where it is loaded.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from plica.runtime.elf import damaged
from plica.runtime.error import ArtefactError, Diagnostic, OutputError, Place, wrong_argument

FORMAT: Final = 1
"""Raised when an older runtime could not read what is written."""

Piece: TypeAlias = bytes | memoryview
P = TypeVar("P")

_SEAL: Final = re.compile(rb"plica artefact (\d{1,6}) sha256:([0-9a-f]{64})")
_TAIL: Final = 96  # the seal is shorter
_MOST_MEMBERS: Final = 1 << 16
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_HEADER: Final = 30  # bytes before the name of a member, two of which say how long it is
_NAME_LENGTH: Final = 26
_FIELD: Final = struct.Struct("<HH")  # which field follows the name of a member, and its bytes
_FILLS: Final = 0xD935  # the one that others, too, align members with


def pack(members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive."""
    return b"".join(pieces({name: (data,) for name, data in members.items()}))


def pieces(
    members: Mapping[str, Sequence[Piece]], sealed: bool = True, align: int = 1
) -> list[Piece]:
    """An archive piece by piece, each member being the pieces it is made of: none is copied.

    What is not `sealed` has no digest of its own: who keeps it has, and reads its `views`.  Members
    begin at multiples of `align`, so that a view can be used as it lies.
    """
    seal = f"plica artefact {FORMAT} sha256:".encode()
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = seal + b"0" * 64
        for name, parts in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.file_size = sum(map(len, parts))
            if align > 1:
                before = sink.tell() + _HEADER + len(name.encode()) + _FIELD.size
                filled = -before % align
                info.extra = _FIELD.pack(_FILLS, filled) + bytes(filled)
            with archive.open(info, "w") as member:
                for each in parts:
                    member.write(each)
    *body, _ = [sink.written[at] for at in sorted(sink.written)]  # the comment is the last
    whole = hashlib.sha256()
    for each in body if sealed else ():
        whole.update(each)
    return [*body, seal + whole.hexdigest().encode()]


class _Sink(io.RawIOBase):
    """A file that keeps what is written to it as it is; what is written again takes its place."""

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
    """Bytes as a file; none is copied but what is read."""

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


def unpack(data: bytes, name: str | None = None) -> dict[str, bytes]:
    """The members of an archive, after its digest was checked."""
    place = None if name is None else Place(file=name)
    found = _seal(data, place)
    body = memoryview(data)[: len(data) - (found.end() - found.start())]
    if hashlib.sha256(body).hexdigest().encode() != found[2]:
        message = "The artefact is damaged: its digest is another."
        raise ArtefactError(Diagnostic("bad-artefact", message, place))
    _check_format(int(found[1]), place)
    return _members(data, lambda archive, info: archive.read(info))


def views(data: Piece) -> dict[str, memoryview]:
    """The members of an archive as they lie in it, where its digest was checked by who kept it."""
    _check_format(int(_seal(data)[1]), None)
    return _members(data, lambda archive, info: _view(data, info))


def is_sealed(data: bytes) -> bool:
    """Whether something ends as an artefact does."""
    found = _SEAL.search(data[-_TAIL:])
    return found is not None and found.end() == len(data[-_TAIL:])


def _seal(data: Piece, place: Place | None = None) -> re.Match[bytes]:
    tail = bytes(data[-_TAIL:])
    found = _SEAL.search(tail)
    if found is None or found.end() != len(tail):
        message = "The file is no artefact of Plica, or its end is missing."
        hint = None
        if place is not None and str(place.file).endswith((".onnx", ".py")):
            hint = (
                f"It looks like a model: plica compile {place.file} -o M.plica makes an artefact."
            )
        raise ArtefactError(Diagnostic("bad-artefact", message, place, suggestion=hint))
    return found


def _check_format(number: int, place: Place | None) -> None:
    if number != FORMAT:
        message = "The artefact was written by a newer version of Plica."
        hint = "Use a newer plica to load it, or compile the model again."
        expected, was = f"format {FORMAT}", f"format {number}"
        raise ArtefactError(Diagnostic("newer-version", message, place, expected, was, hint))


def _members(data: Piece, read: Callable[[zipfile.ZipFile, zipfile.ZipInfo], P]) -> dict[str, P]:
    try:
        with zipfile.ZipFile(io.BufferedReader(_Source(data))) as archive:
            infos = archive.infolist()
            if len(infos) > _MOST_MEMBERS or any(
                each.compress_type != zipfile.ZIP_STORED or each.file_size > len(data)
                for each in infos
            ):
                raise damaged("The artefact has members that no artefact has.")
            members = {each.filename: read(archive, each) for each in infos}
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError) as error:
        raise damaged("The artefact is no readable zip file.", str(error)) from error
    if len(members) != len(infos):
        raise damaged("The artefact has two members of one name.")
    return members


def _view(data: Piece, info: zipfile.ZipInfo) -> memoryview:
    name, extra = struct.unpack_from("<HH", data, info.header_offset + _NAME_LENGTH)
    start = info.header_offset + _HEADER + name + extra
    if start + info.file_size > len(data):
        raise damaged("A member of the artefact is outside of it.", info.filename)
    return memoryview(data)[start : start + info.file_size]


LONGEST_NAME: Final = 255
"""Bytes of the name of a file, at most."""


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
    if len(name) > LONGEST_NAME or b"\0" in os.fsencode(path):
        why = "Its name is too long." if len(name) > LONGEST_NAME else "Its name has a null in it."
        raise _unwritable(path, why, "Give another name.")
    # Those of os.path say no where a path is too long to be asked about; writing then says why.
    target = Path(os.path.realpath(path))
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
    """Write a file so that it is there as a whole or not at all."""
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
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message = f"The artefact cannot be read: {error.strerror}."
        place = Place(file=os.fspath(path))
        raise ArtefactError(Diagnostic("bad-artefact", message, place)) from error
    return unpack(data, os.fspath(path))
