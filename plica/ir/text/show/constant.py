"""Constants in print: exact to the bit, whatever they hold.

A scalar is `f32(0.1)`, a few numbers are `const([1.0, 2.0], f32)`, up to 4 KiB are inline as
`data("…", (32, 32), f32)`, and larger constants are in a separate table, under their hash.

>>> from plica.ir.graph.expression import const
>>> constant_text(const(0.1, "f32")), constant_text(const([1, 2], "i8"))
('f32(0.1)', 'const([1, 2], i8)')
"""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any, Final

import numpy as np

from plica.core import CompilerBug
from plica.ir.graph.expression import Const
from plica.ir.text.show.type import parenthesised
from plica.ir.type import DType, bool_

MAX_NUMBERS_INLINE: Final = 16  # up to this many numbers are written out
INLINE: Final = 4096  # up to this many bytes stand in the text


def constant_text(of: Const) -> str:
    """The constant as an expression; one of `data`'s or `archived`'s size may be long."""
    dtype = of.dtype.name
    if math.prod(of.shape) <= MAX_NUMBERS_INLINE:
        numbers = _numbers(of)
        if numbers is not None and not of.shape:
            return f"{dtype}({numbers[0]})"
        if numbers is not None and (0 not in of.shape or of.shape == (0,)):
            return f"const({_nested(numbers, of.shape)}, {dtype})"
    shape = parenthesised([str(size) for size in of.shape])
    if len(of.data) <= INLINE:
        return f'data("{base64.b85encode(of.content).decode()}", {shape}, {dtype})'
    return f'archived("{constant_key(of)}", {shape}, {dtype})'


def is_small(of: Const) -> bool:
    """Whether the constant is written out at each use."""
    return math.prod(of.shape) <= MAX_NUMBERS_INLINE


def is_archived(of: Const) -> bool:
    """Whether the constant is in the separate table."""
    return len(of.data) > INLINE and not is_small(of)


def constant_key(of: Const) -> str:
    """The name of a constant in an archive: the hash of all it is."""
    content = hashlib.sha256(f"{of.dtype.name}{list(of.shape)}".encode())
    content.update(of.content)
    return content.hexdigest()


def number_text(of: Const) -> str | None:
    """The literal of a scalar, or None if it has none (NaN, infinity)."""
    if of.shape:
        raise CompilerBug(f"{of!r} is no scalar.")
    numbers = _numbers(of)
    return None if numbers is None or numbers[0].startswith('"') else numbers[0]


def _numbers(of: Const) -> list[str] | None:
    """The elements as text, or None if some have no exact one."""
    array = of.numpy()
    if of.dtype.is_float:
        found = [_float(value, of.dtype) for value in array.reshape(-1)]
        return None if None in found else [each for each in found if each is not None]
    if of.dtype is bool_ and any(byte > 1 for byte in of.content):
        return None
    return [str(value) for value in array.reshape(-1).tolist()]


def _float(value: Any, dtype: DType) -> str | None:
    wide = float(value)
    if not math.isfinite(wide):
        word = "nan" if math.isnan(wide) else "inf" if wide > 0 else "-inf"
        usual = np.asarray(float(word), dtype.numpy)
        return f'"{word}"' if usual.tobytes() == np.asarray(value, dtype.numpy).tobytes() else None
    if dtype.bits == 64:
        return repr(wide)
    bits = np.asarray(value, dtype.numpy).tobytes()
    with np.errstate(over="ignore"):
        for digits in range(1, 10):
            short = float(f"{wide:.{digits}g}")
            if np.asarray(short).astype(dtype.numpy).tobytes() == bits:
                return repr(short)
    return repr(wide)


def _nested(numbers: list[str], shape: tuple[int, ...]) -> str:
    for size in reversed(shape[1:]):
        numbers = [f"[{', '.join(numbers[i : i + size])}]" for i in range(0, len(numbers), size)]
    return f"[{', '.join(numbers)}]"
