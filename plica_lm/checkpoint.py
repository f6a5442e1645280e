"""Checkpoints: all that is known of a model's files, and what their readers share.

Nothing is read before it is used: weights are memory-mapped. File contents are validated on
opening; a damaged file is refused with the expected and actual state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from attrs import field, frozen

from plica.ir.type.dtype import DType
from plica_lm.format import BlockFormat
from plica_lm.refusal import DAMAGED, refusal
from plica_lm.tokenizer import Tokenizer
from plica_lm.weight import Format, Weight

Array: TypeAlias = np.ndarray[Any, Any]


@frozen(eq=False)
class Checkpoint:
    """The files of a model: its configuration, its weights and its tokenizer."""

    config: Mapping[str, Any] = field(repr=False)  # Any: JSON, or the metadata of a GGUF file
    weights: Mapping[str, Weight] = field(repr=False)
    tokenizer: Callable[[], Tokenizer] = field(repr=False)  # builds it on demand


def bytes_of(shape: tuple[int, ...], of: Format) -> tuple[int, ...]:
    """The shape of a weight's data, the last axis in bytes."""
    if isinstance(of, DType):
        return (*shape[:-1], shape[-1] * of.bytes) if shape else (of.bytes,)
    return (*shape[:-1], of.row_bytes(shape[-1] if shape else 1))


def mapped(file: Array, at: int, name: str, shape: tuple[int, ...], of: Format) -> Weight:
    """A weight that begins at a byte of a file, whose length has been checked."""
    lies = bytes_of(shape, of)
    data = file[at : at + math.prod(lies)]
    if isinstance(of, BlockFormat):
        return Weight(name, shape, of, data.reshape(lies))
    return Weight(name, shape, of, data.view(of.numpy).reshape(shape))


def map_file(path: Path) -> Array:
    """The bytes of a file, read when they are looked at."""
    try:
        if path.stat().st_size == 0:
            refuse(path, "The file is empty.", "a model", "0 bytes")
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        refuse(path, "The file cannot be read.", "a file", str(error.strerror or error))


def refuse(path: Path, message: str, expected: str, found: str) -> NoReturn:
    """Refuse a file that is damaged."""
    raise refusal("bad-model", message, expected, found, DAMAGED, path)
