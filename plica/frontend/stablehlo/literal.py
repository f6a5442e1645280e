"""Types and dense constants of MLIR's text, and back.

>>> array(r'dense<[[1, 2], [3, 4]]>', mlir_type("tensor<2x2xi32>"), 1).tolist()
[[1, 2], [3, 4]]
>>> array('dense<0x7F800000>', mlir_type("tensor<2xf32>"), 1).tolist()
[inf, inf]
>>> dense(np.float32([1.5, -2.0]))
'dense<[1.5, -2.0]>'
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from plica.frontend.stablehlo.syntax import MlirType, malformed
from plica.ir.type.dtype import DType

Array = np.ndarray[Any, Any]

DTYPES: Final[dict[str, DType]] = {
    "i1": DType("bool"), "f8E4M3FN": DType("f8e4m3fn"), "f8E5M2": DType("f8e5m2"),
    "f8E4M3FNUZ": DType("f8e4m3fnuz"), "f8E5M2FNUZ": DType("f8e5m2fnuz"),
    **{name: DType(name) for name in ("i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")},
    **{f"ui{bits}": DType(f"u{bits}") for bits in (8, 16, 32, 64)},
    **{f"si{bits}": DType(f"i{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""The dtypes that element types are."""

ELEMENTS: Final = {of: name for name, of in DTYPES.items() if not name.startswith("si")}
"""How each dtype is written."""

_TENSOR: Final = re.compile(r"tensor<((?:(?:\d+|\?)x)*)([^,]*)(?:,.*)?>", re.DOTALL)
_NUMBER: Final = re.compile(r"[^\s,()\[\]]+")
COMPLEX: Final[dict[str, np.dtype[Any]]] = {
    "complex<f32>": np.dtype(np.float32),
    "complex<f64>": np.dtype(np.float64),
}


def mlir_type(text: str) -> MlirType:
    """The type of a text; for others than ranked tensors, just the text."""
    if (match := _TENSOR.fullmatch(text)) is None:
        return MlirType(text)
    sizes = tuple([None if each == "?" else int(each) for each in match[1].split("x")[:-1]])
    return MlirType(text, sizes, match[2].strip())


def array(text: str, of: MlirType, line: int) -> Array:
    """The elements of a dense constant; complex numbers have an axis of two parts in the end."""
    inside = text[text.index("<") + 1 : -1].strip()
    shape = tuple([size or 0 for size in of.shape])
    parts = COMPLEX.get(of.element)
    dtype: np.dtype[Any] | None = parts
    if parts is None and of.element in DTYPES:
        dtype = np.dtype(DTYPES[of.element].numpy)
    if dtype is None:
        malformed("A constant is of no element type that Plica has.", line, found=of.text)
    whole = shape if parts is None else (*shape, 2)
    if not inside and 0 in shape:
        return np.zeros(whole, dtype)
    if inside.startswith('"'):
        raw = inside.strip('"').removeprefix("0x")
        values = _bytes(raw, dtype, line)
    else:
        words = _NUMBER.findall(inside)
        if not inside.startswith("["):  # one value for all
            values = _numbers(words, dtype, line)
            return np.array(np.broadcast_to(values.reshape(whole[len(shape) :]), whole))
        values = _numbers(words, dtype, line)
    count = int(np.prod(whole, dtype=np.int64))
    if values.size == 1 and inside.startswith('"'):
        return np.full(whole, values[0], dtype)
    if values.size != count:
        message = "A constant has another number of elements than its type."
        malformed(message, line, str(count), str(values.size))
    return values.reshape(whole)


def _bytes(raw: str, dtype: np.dtype[Any], line: int) -> Array:
    try:
        data = bytes.fromhex(raw)
    except ValueError:
        malformed("A constant is no string of bytes.", line, "hexadecimal digits")
    if dtype.kind == "b":
        return np.array(np.frombuffer(data, np.uint8) != 0)
    if len(data) % dtype.itemsize:
        malformed("A constant ends inside of an element.", line)
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)


def _numbers(words: list[str], dtype: np.dtype[Any], line: int) -> Array:
    """Numbers from their words: floats may be written as their bits."""
    try:
        if dtype.kind == "b":
            return np.array(
                [{"true": True, "false": False, "1": True, "0": False}[w] for w in words]
            )
        if dtype.kind in "iu":
            return np.array([int(word, 0) for word in words], dtype)
        bits = np.dtype(f"u{dtype.itemsize}")
        if not any(word.startswith("0x") for word in words):
            return np.array([float(word) for word in words]).astype(dtype)
        numbers = [
            np.array(int(word, 16), bits).view(dtype) if word.startswith("0x") else dtype.type(word)
            for word in words
        ]
        return np.array(numbers, dtype)
    except (ValueError, KeyError, OverflowError) as error:
        malformed("A constant holds what is no number of its type.", line, found=str(error))


def dense(of: Array) -> str:
    """A constant in MLIR's text; floats that have no short decimal are written as their bits."""
    if of.size and (of == of.flat[0]).all() and of.ndim:
        return f"dense<{_word(of.flat[0])}>"
    if of.size == 0:
        return "dense<>"
    if of.ndim == 0:
        return f"dense<{_word(of[()])}>"
    if of.size > 64:
        data = of.astype(np.uint8) if of.dtype.kind == "b" else of
        return f'dense<"0x{data.tobytes().hex().upper()}">'

    def nested(part: Array) -> str:
        inner = map(nested, part) if part.ndim > 1 else map(_word, part)
        return f"[{', '.join(inner)}]"

    return f"dense<{nested(of)}>"


def _word(of: Any) -> str:  # Any: a number of numpy
    kind = np.asarray(of).dtype
    if kind.kind == "b":
        return "true" if of else "false"
    if kind.kind in "iu":
        return str(int(of))
    number = float(of)
    if not np.isfinite(number) or kind.itemsize < 4:
        code = np.asarray(of).view(f"u{kind.itemsize}")
        return f"0x{int(code):0{2 * kind.itemsize}X}"
    short = repr(number) if kind.itemsize == 8 else str(of)
    return short if "." in short or "e" not in short else short.replace("e", ".0e", 1)
