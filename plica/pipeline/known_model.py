"""Known models: a model file that was compiled before is loaded without the compiler.

The digest of the bytes of a model, the options and the compiler's stamp lead to the name under
which the artefact is kept.  So a process that compiles what another has compiled reads the file
once, and imports neither LLVM nor the reader of models.  Where anything is not plain (a pass of
one's own, a tuning database, tensors in files beside the model), all goes the usual way.

A model that differs from one that was compiled in the values of large tensors alone is found by
what is left of its bytes without them; its artefact is made of the other's
(`plica.pipeline.edited_model`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import file_digest, sha256
from io import BufferedReader, BytesIO
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from plica.runtime import archive
from plica.runtime.artefact import from_members
from plica.runtime.error import ArtefactError, Diagnostic, Place, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.extern import NONE
from plica.runtime.late import late
from plica.runtime.load import executable
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.record import CompilationRecord
from plica.runtime.store import ArtefactStore, is_key, key_of, user_store

if TYPE_CHECKING:
    from plica.pipeline.compiled import kept_pieces
    from plica.pipeline.compiler_stamp import compiler_stamp
    from plica.pipeline.edited_model import keep_structure, made_of_another
else:  # which brings the compiler
    keep_structure = late("plica.pipeline.edited_model:keep_structure")
    made_of_another = late("plica.pipeline.edited_model:made_of_another")
    kept_pieces = late("plica.pipeline.compiled:kept_pieces")
    compiler_stamp = late("plica.pipeline.compiler_stamp:compiler_stamp")

Compile = Callable[..., Executable]

_SHARED: Final[WeakValueDictionary[str, Executable]] = WeakValueDictionary()
"""Executables of model files that are still in use in this process."""

_PLAIN: Final = (str, int, bool, type(None))
_ABSENT: Final = ("database", "passes", "schedules", "externs", "donate")
"""Options whose values no text tells apart: whoever gives one goes the usual way."""

_CHUNK: Final = 1 << 20
_BESIDE: Final = b"location"
"""What the bytes of a model say where a tensor lies in another file."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The elements of a large tensor among the bytes of a model: their digest and place."""

    digest: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """A model as bytes: the digest of all, that of what is left without the elements of large
    tensors, these, and what would tell that they changed meanwhile."""

    source: Any  # Any: a path, bytes or a model of ONNX's
    structure: str
    tensors: tuple[StoredTensor, ...]
    state: object

    @property
    def digest(self) -> str:
        """The digest of all bytes."""
        return key_of("model", self.structure, *[each.digest for each in self.tensors])

    def elements(self, of: StoredTensor) -> bytes | None:
        """The bytes of a tensor, None where the model is another by now."""
        with _opened(self.source) as file:
            file.seek(of.start)
            data = file.read(of.size)
        return data if sha256(data).hexdigest() == of.digest else None


@dataclass(frozen=True, slots=True)
class ModelQuery:
    """A model and options that can be looked up: the key, and where it is kept."""

    model: ModelBytes
    options: Mapping[str, Any]  # Any: as `plica.compile` takes them
    key: str
    like: str
    """The key of what is known of all models that have these operators, too."""
    store: ArtefactStore


def query_of(source: Any, options: Mapping[str, Any]) -> ModelQuery | None:  # Any: as above
    """What is asked for, if it is a model file with plain options and there is a store."""
    plain = all(_is_plain(value) for value in options.values())
    if not plain or any(options[name] for name in _ABSENT) or not options["cache"]:
        return None
    if options["validate"] or options["background"] or not _is_processor(options["target"]):
        return None
    store = user_store()
    model = None if store is None else _bytes_of(source)
    if store is None or model is None:
        return None
    asked = repr(sorted(options.items())), compiler_stamp()
    key, like = key_of("model-file", model.digest, *asked), key_of("like", model.structure, *asked)
    return ModelQuery(model, options, key, like, store)


def known(of: ModelQuery, anew: Compile) -> Executable | None:
    """The executable of a model that was compiled before; `anew` compiles what is asked about."""
    if (shared := _SHARED.get(of.key)) is not None:
        return shared
    told = of.store.get(of.key)
    if told is None and made_of_another(of):
        told = of.store.get(of.key)
    note = None if told is None else _noted(told)
    if note is None:
        return None  # it is made anew, and noted again
    again = partial(_again, of, anew)
    whole = lru_cache(maxsize=1)(again)
    stored = of.store.found_apart(note["entry"], lambda: _packed_again(of, anew), "the model")
    if note["entry"] in of.store.wrong:  # or the note is, and the entry was right for another model
        of.store.drop(note["entry"])
        of.store.drop(of.key)
    if stored is None:
        return None
    try:
        members = archive.views(stored)
        artefact = from_members(members, partial(_record, whole), checked=True)
    except ArtefactError:
        return None
    texts = {kind: partial(_text, whole, kind) for kind in note["texts"]}
    found = executable(artefact, texts=texts)
    found.told(note["tier"], 0, lambda: whole().derivation)
    found.kept = note["entry"]
    if isinstance(found, OpenExecutable):
        found.beside(lambda: _beside(whole()), eager=note["eager"])
    _SHARED[of.key] = found
    return found


def _noted(told: bytes) -> dict[str, Any] | None:
    """A note as `keep` writes it; None for anything else: digests tell damage, not mistakes."""
    try:
        note = json.loads(told)
    except (ValueError, RecursionError):
        return None
    match note:
        case {"entry": str(entry), "texts": [*texts], "tier": str(), "eager": bool()}:
            good = is_key(entry) and all(isinstance(each, str) for each in texts)
            return note if good else None
    return None


def keep(of: ModelQuery, made: Executable) -> None:
    """Note under which name the artefact of what was asked for is kept, if it is."""
    if type(made) not in (Executable, OpenExecutable) or made._externs is not NONE:
        return
    if not made.kept or not _is_whole(of.model.source):
        return
    if _bytes_state(of.model.source) != of.model.state:
        return
    eager = bool(of.options["specialise"])
    note = {"entry": made.kept, "texts": [*made._texts], "tier": made.tier, "eager": eager}
    of.store.put(of.key, json.dumps(note).encode())
    keep_structure(of, note)
    _SHARED[of.key] = made


def _again(of: ModelQuery, anew: Compile) -> Executable:
    """The same model by the whole compiler, for what no artefact holds: texts and records."""
    model = _bytes_of(of.model.source)
    if model is None or model.digest != of.model.digest:
        message = "The model is another than it was when this executable was made."
        place = Place(file=os.fspath(of.model.source)) if _is_path(of.model.source) else None
        hint = "Compile it again, or ask for this before the model changes."
        found = "no file" if model is None else model.digest[:16]
        told = Diagnostic("no-source", message, place, of.model.digest[:16], found, hint)
        raise UnsupportedError(told)
    return anew(of.model.source, **of.options)


def _packed_again(of: ModelQuery, anew: Compile) -> list[archive.Piece]:
    """The artefact as the store keeps it, made from nothing but the model."""
    made = anew(of.model.source, **{**of.options, "cache": False})
    return kept_pieces(made.artefact)


def _record(of: Callable[[], Executable]) -> CompilationRecord:
    return of().artefact.record()


def _text(of: Callable[[], Executable], kind: str) -> str:
    return of().source(kind)


def _beside(of: Executable) -> Executable:
    """What makes code for one size only."""
    assert isinstance(of, OpenExecutable)
    return of.others()


# --- bytes of a model -----------------------------------------------------------------------------


def _bytes_of(source: Any) -> ModelBytes | None:  # Any: whatever `plica.compile` takes
    """The bytes of a model, None where it is something else or cannot be read."""
    state = _bytes_state(source)
    if _is_path(source):
        if not os.fspath(source).endswith(".onnx") or state is None:
            return None
        try:
            return ModelBytes(source, *_scanned(source), state)
        except OSError:
            return None
    if isinstance(source, bytes) or hasattr(source, "opset_import"):
        return ModelBytes(source, *_scanned(source), state)
    return None


def _opened(source: Any) -> BufferedReader | BytesIO:  # as above
    """The bytes of a model as a file."""
    if _is_path(source):
        return open(source, "rb")
    return BytesIO(source if isinstance(source, bytes) else _serialised(source))


def _scanned(source: Any) -> tuple[str, tuple[StoredTensor, ...]]:  # as above
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


_PATH: Final = (7, 5, 9)
"""The fields that lead to the elements of a tensor: `graph`, `initializer`, `raw_data`."""
_LARGE: Final = 4096
"""Bytes of a tensor from which on it is looked for apart from its model
(`plica.ir.graph.provenance.STORED`)."""


class _Scan:
    """A pass over the bytes of a model."""

    def __init__(self, file: BufferedReader | BytesIO) -> None:
        self.file = file
        self.at = 0
        self.structure = sha256()
        self.tensors: list[StoredTensor] = []
        self.room = memoryview(bytearray(_CHUNK))

    def whole(self) -> tuple[str, tuple[StoredTensor, ...]]:
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
            elif field != path[0] or (len(path) == 1 and size < _LARGE):
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


def _is_whole(source: Any) -> bool:  # as above
    """Whether all of a model is in its own bytes."""
    if _is_path(source):
        end = b""
        with open(source, "rb") as file:
            while data := file.read(_CHUNK):
                # From the end: CPython looks for what is not there in half the time.
                if _BESIDE in end + data[: len(_BESIDE)] or data.rfind(_BESIDE) >= 0:
                    return False
                end = data[-len(_BESIDE) :]
        return True
    return _BESIDE not in (source if isinstance(source, bytes) else _serialised(source))


def _serialised(model: Any) -> bytes:  # Any: a model of ONNX's, which is not imported here
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _bytes_state(source: Any) -> object:  # as above
    """What tells that a file is another now."""
    if not _is_path(source):
        return None
    try:
        found = os.stat(source)
    except (OSError, ValueError):  # a name that no file can have is refused by who reads it
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _is_path(source: object) -> bool:
    return isinstance(source, str | os.PathLike)


def _is_processor(target: object) -> bool:
    return isinstance(target, str) and target.startswith("cpu")


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, _PLAIN)
