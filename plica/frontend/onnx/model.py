"""Model files: opened, bounded, and identified as ONNX before anything else."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from plica.core.diagnostic import Malformed
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError, neighbour

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_ZIP: Final = b"PK\x03\x04"
MOST_OF_HEAD: Final = 256  # bytes of a file that tell its form
MOST_BYTES: Final = (1 << 31) - 1
"""The format's limit; larger models keep their tensors in separate files."""


@attrs.frozen
class Opened:
    """A model, and the folder in which its other files may lie."""

    model: ModelProto
    folder: Path | None


def open_model(source: str | PathLike[str] | bytes | ModelProto) -> Opened:
    """The model of a path, of the bytes of a file, or as it was read elsewhere."""
    try:
        from onnx import ModelProto
    except ImportError as error:
        message = "Reading a model needs the package onnx, which is not installed."
        hint = "It comes with Plica: pip install onnx."
        diagnostic = Diagnostic("missing-tool", message, None, "onnx", str(error), hint)
        raise UnsupportedError(diagnostic) from None
    folder = place = None
    if isinstance(source, ModelProto):
        model = source
    elif isinstance(source, bytes):
        model = _parsed(source, "model")
    else:
        if not isinstance(source, str | PathLike):
            message = "This is no model: a path, the bytes of a file or a ModelProto is one."
            raise InputError.of("input-type", message, None, "an ONNX model", type(source).__name__)
        if isinstance(source, str) and "\n" in source:
            message, hint = "This is a text and not a path.", "plica.from_text reads scripts."
            raise InputError.of("input-type", message, None, "a path", repr(source[:40]), hint)
        path = Path(fspath(source))
        model = _parsed(_bytes(path), str(path))
        folder, place = path.parent, Place(file=str(path))
    if model.ir_version < 1 or not model.HasField("graph"):
        message = "This is no ONNX model: it has no version or no graph."
        raise Malformed.of("bad-model", message, place, "an ONNX model", _amount(source))
    _check_text(model)
    if not model.opset_import:
        message = "The model does not say which version of the operators it uses."
        hint = "Export it again, or add onnx.helper.make_opsetid('', VERSION)."
        raise Malformed.of("bad-model", message, place, "opset_import", None, hint)
    return Opened(model, folder)


def _amount(source: object) -> str | None:
    """The description of an empty source, or None."""
    empty = isinstance(source, bytes) and not source
    if isinstance(source, str | PathLike):
        empty = Path(fspath(source)).stat().st_size == 0
    return "an empty file" if empty else None


def is_list(info: ValueInfoProto) -> bool:
    """Whether an input or output is a sequence or an optional."""
    return bool(info.type.HasField("sequence_type") or info.type.HasField("optional_type"))


def input_names(model: ModelProto) -> tuple[str, ...]:
    """The required inputs of a model, in order: those without stored tensors."""
    stored = {each.name for each in model.graph.initializer}
    return tuple([each.name for each in model.graph.input if each.name not in stored])


def _check_text(model: ModelProto) -> None:
    """Refuse names that are no text: the reader hands them out as bytes."""
    from google.protobuf.message import Message  # type: ignore[import-untyped]  # protobuf has no types

    stack: list[Message] = [model]
    while stack:
        for field, value in stack.pop().ListFields():
            if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
                continue
            found = [value] if isinstance(value, str | bytes | Message) else list(value)
            if field.type == field.TYPE_MESSAGE:
                stack += found
            elif any(isinstance(each, bytes) for each in found):
                message = f"The model holds a {field.name!r} that is no text."
                raise Malformed.of("bad-model", message, None, "UTF-8", repr(found[0]))


def _bytes(path: Path) -> bytes:
    place = Place(file=str(path))
    if not path.is_file():
        message, hint = "There is no such file.", neighbour(path, ".onnx")
        if path.exists():
            message = "This is a folder, or nothing that holds a model."
        raise Malformed.of("bad-model", message, place, "a file", str(path), hint)
    size = path.stat().st_size
    if size > MOST_BYTES:
        message = "The file is larger than an ONNX model can be."
        limit = f"{MOST_BYTES} bytes"
        hint = "Keep its tensors beside it: onnx.save(model, path, save_as_external_data=True)."
        raise Malformed.of("bad-model", message, place, limit, str(size), hint)
    return path.read_bytes()


def _parsed(data: bytes, name: str) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        message = "The file is no ONNX model, or is damaged."
        expected, place = "a ModelProto in the binary form of protobuf", Place(file=name)
        found, hint = _other_form(data, name) or (str(error), "Copy or export the model again.")
        raise Malformed.of("bad-model", message, place, expected, found, hint) from None
    return model


def _other_form(data: bytes, name: str) -> tuple[str, str] | None:
    """The kind of a file that is no binary model, and what to do with it, if known."""
    if data.startswith(_ZIP):
        return "a zip file", "An artefact is loaded, by plica.load."
    begin = data[:MOST_OF_HEAD].lstrip()
    if begin.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS", "Fetch the file itself: git lfs pull."
    marks = {b"{": "json", b"<": "onnxtxt", b"ir_version:": "textproto"}
    if (form := next((marks[mark] for mark in marks if begin.startswith(mark)), None)) is None:
        return None
    hint = f"Write the binary form: onnx.save(onnx.load({name!r}, format={form!r}), 'binary.onnx')."
    return f"a text, which may be a model in the form {form!r}", hint
