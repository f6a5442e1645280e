"""Model files: opened, bounded, and known to be ONNX before anything else is asked of them."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from plica.core.diagnostic import Malformed, did_you_mean
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

_ZIP: Final = b"PK\x03\x04"

MOST_BYTES: Final = (1 << 31) - 1
"""The format itself holds no more; larger models keep their tensors in files beside them."""


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
            found = type(source).__name__
            raise InputError(Diagnostic("input-type", message, None, "an ONNX model", found))
        path = Path(fspath(source))
        model = _parsed(_bytes(path), str(path))
        folder, place = path.parent, Place(file=str(path))
    if model.ir_version < 1 or not model.HasField("graph"):
        message = "This is no ONNX model: it has no version or no graph."
        raise Malformed(Diagnostic("bad-model", message, place, "an ONNX model", _amount(source)))
    _check_text(model)
    if not model.opset_import:
        message = "The model does not say which version of the operators it uses."
        hint = "Export it again, or add onnx.helper.make_opsetid('', VERSION)."
        raise Malformed(Diagnostic("bad-model", message, place, "opset_import", None, hint))
    return Opened(model, folder)


def _amount(source: object) -> str | None:
    """What there is instead of a model, where that is nothing."""
    empty = isinstance(source, bytes) and not source
    if isinstance(source, str | PathLike):
        empty = Path(fspath(source)).stat().st_size == 0
    return "an empty file" if empty else None


def is_list(info: ValueInfoProto) -> bool:
    """Whether an input or output is a sequence or an optional."""
    return bool(info.type.HasField("sequence_type") or info.type.HasField("optional_type"))


def input_names(model: ModelProto) -> tuple[str, ...]:
    """The inputs that a model must be given, in order: those it holds no tensor for."""
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
                raise Malformed(Diagnostic("bad-model", message, None, "UTF-8", repr(found[0])))


def _bytes(path: Path) -> bytes:
    place = Place(file=str(path))
    if not path.is_file():
        message, hint = "There is no such file.", _neighbour(path)
        if path.exists():
            message = "This is a folder, or nothing that holds a model."
        raise Malformed(Diagnostic("bad-model", message, place, "a file", str(path), hint))
    size = path.stat().st_size
    if size > MOST_BYTES:
        message = "The file is larger than an ONNX model can be."
        limit = f"{MOST_BYTES} bytes"
        hint = "Keep its tensors beside it: onnx.save(model, path, save_as_external_data=True)."
        raise Malformed(Diagnostic("bad-model", message, place, limit, str(size), hint))
    return path.read_bytes()


def _neighbour(path: Path) -> str | None:
    """Which model may be meant by a path that holds none."""
    folder = path if path.is_dir() else path.parent
    names = sorted([each.name for each in folder.glob("*.onnx")]) if folder.is_dir() else []
    if path.is_dir():
        return f"Give a file in it, as {names[0]!r}." if names else None
    return did_you_mean(path.name, names)


def _parsed(data: bytes, name: str) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        message = "The file is no ONNX model, or is damaged."
        place = Place(file=name)
        hint = "An artefact is loaded, by plica.load." if data.startswith(_ZIP) else None
        raise Malformed(Diagnostic("bad-model", message, place, None, str(error), hint)) from None
    return model
