"""Stored tensors: the elements of a `TensorProto`, from the model or from a separate file.

Nothing is trusted: sizes are multiplied in Python integers and compared with the available bytes
before any memory is allocated, and a file is read only if it is, with all links resolved, in the
model's folder.

>>> from onnx import helper, TensorProto
>>> array_of(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.5]), None).tolist()
[1.0, 2.5]
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from plica.core.diagnostic import Malformed
from plica.ir.type.dtype import DTYPES, DType, bool_
from plica.runtime.error import Diagnostic, Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import TensorProto

Array = np.ndarray[Any, Any]

NUMBERS: Final[dict[int, DType]] = {dtype.row.onnx: dtype for dtype in DTYPES}
"""The element types of ONNX that Plica has, by their number in the format."""

MOST_AXES: Final = 64  # tensors of more axes are refused; numpy has no others either


def dtype_of(number: int, place: str) -> DType:
    """The element type of a number of the format."""
    if (dtype := NUMBERS.get(number)) is not None:
        return dtype
    from onnx import TensorProto

    known = number in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(number) if known else str(number)
    message = f"The element type {name} is not one of Plica's."
    expected = ", ".join(str(each) for _, each in sorted(NUMBERS.items()))
    kind = UnsupportedError if known and number else Malformed
    code = "unsupported" if kind is UnsupportedError else "bad-model"
    raise kind(Diagnostic(code, message, Place(node=place), expected, name))


def array_of(tensor: TensorProto, folder: Path | None, place: str | None = None) -> Array:
    """The elements of a stored tensor; `folder` is where its file may lie."""
    place = place or tensor.name or "a constant"
    dtype = dtype_of(tensor.data_type, place)
    shape = tuple(tensor.dims)
    if len(shape) > MOST_AXES:
        message = "A stored tensor has too many axes."
        place_ = Place(node=place)
        expected = f"at most {MOST_AXES}"
        raise UnsupportedError.of("unsupported", message, place_, expected, f"{len(shape)} axes")
    if any(size < 0 for size in shape):
        _refuse(place, "A stored tensor has a negative size.", "sizes of 0 or more", str(shape))
    if tensor.HasField("segment"):
        message = "A stored tensor comes in segments."
        raise UnsupportedError.of("unsupported", message, Place(node=place))
    count = math.prod(shape)
    size = _stored_bytes(dtype, count)
    if tensor.data_location == tensor.EXTERNAL:
        raw = _external(tensor, folder, place, size)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        return _typed(tensor, dtype, shape, count, place)
    if len(raw) != size:
        expected = f"{size} bytes for {dtype} of shape {shape}"
        _refuse(place, "A stored tensor does not fit its shape.", expected, f"{len(raw)} bytes")
    if dtype.name == "bool" and raw.strip(b"\0\1"):
        _refuse(place, "A stored bool is neither 0 nor 1.", "0 or 1", "another byte")
    if _is_packed(dtype):
        return _spread(np.frombuffer(raw, np.uint8), dtype, count).reshape(shape)
    little = dtype.numpy.newbyteorder("<") if dtype.bits > 8 else dtype.numpy
    return np.frombuffer(raw, little).reshape(shape)


def _typed(
    tensor: TensorProto, dtype: DType, shape: tuple[int, ...], count: int, place: str
) -> Array:
    values = getattr(tensor, dtype.row.onnx_field)
    wanted = _stored_bytes(dtype, count) if _is_packed(dtype) else count
    if len(values) != wanted:
        expected = f"{wanted} numbers for shape {shape}"
        _refuse(place, "A stored tensor does not fit its shape.", expected, str(len(values)))
    if _is_packed(dtype):
        packed = np.asarray(values, np.int64)
        _within(packed, 0, 255, place)
        return _spread(packed.astype(np.uint8), dtype, count).reshape(shape)
    if dtype.is_narrow:  # their bits are stored as integers
        bits = np.asarray(values, np.int64)
        _within(bits, 0, (1 << dtype.bits) - 1, place)
        return bits.astype(f"u{dtype.bytes}").view(dtype.numpy).reshape(shape)
    array = np.asarray(values)
    if not dtype.is_float and count:
        _within(array, *dtype.bounds, place)
    return array.astype(dtype.numpy).reshape(shape)


def _is_packed(dtype: DType) -> bool:
    """Whether the format packs several numbers in a byte."""
    return dtype.bits < 8 and dtype is not bool_


def _stored_bytes(dtype: DType, count: int) -> int:
    """The format's bytes for a number of elements."""
    return -(-count * dtype.bits // 8) if _is_packed(dtype) else count * dtype.bytes


def _spread(packed: Array, dtype: DType, count: int) -> Array:
    """Unpacks numbers, lowest bits first, to one byte each."""
    shifts = np.array(range(0, 8, dtype.bits), np.uint8)
    codes: Array = (packed[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)
    return codes.reshape(-1)[:count].view(dtype.numpy)


def _within(array: Array, low: int, high: int, place: str) -> None:
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        found = f"{array.min()} to {array.max()}"
        _refuse(place, "A stored number is outside its type.", f"{low} to {high}", found)


def _external(tensor: TensorProto, folder: Path | None, place: str, size: int) -> bytes:
    """The bytes of a tensor in a separate file."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    location = said.get("location", "")
    if folder is None:
        message = "A stored tensor lies in a file, and the model did not come from one."
        hint = "Give the path of the model, or load the tensors first."
        raise UnsupportedError.of("unsupported", message, Place(node=place), None, location, hint)
    home = folder.resolve()
    if "\0" in location:
        message = "The location of a stored tensor is no path of a file."
        _refuse(place, message, "a path without the byte 0", repr(location[:80]))
    try:
        path = (home / location).resolve()
        there = path.stat().st_size if path.is_file() else None
    except (OSError, RuntimeError) as reason:  # a name that no file has, or links in a circle
        message = "The location of a stored tensor is no path of a file."
        _refuse(place, message, "a file beside the model", f"{location[:80]!r}: {reason}"[:200])
    if not location or not path.is_relative_to(home) or path == home:
        message = "A stored tensor lies outside the folder of its model."
        _refuse(place, message, "a file beside the model", repr(location))
    offset, length = (_natural(said.get(key, default), key, place)
                      for key, default in (("offset", "0"), ("length", str(size))))  # fmt: skip
    if length != size:
        message = "A stored tensor does not fit its shape."
        _refuse(place, message, f"{size} bytes", f"{length} bytes")
    if there is None:
        _refuse(place, "The file of a stored tensor is missing.", "a file", repr(location))
    if offset + length > there:
        message = "The file of a stored tensor is too short."
        _refuse(place, message, f"{offset + length} bytes", f"{there} bytes")
    with path.open("rb") as file:
        file.seek(offset)
        found: bytes = file.read(length)
        return found


def _natural(text: str, key: str, place: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        message = f"The {key} of a stored tensor is no number."
        _refuse(place, message, "a whole number", repr(text[:40]))
    return int(text)


def _refuse(place: str, message: str, expected: str, found: str) -> NoReturn:
    raise Malformed.of("bad-model", message, Place(node=place), expected, found)
