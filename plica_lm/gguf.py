"""Checkpoints in one GGUF file: metadata, tokenizer, tensors in block formats.

"GGUF", version, tensors, entries     4 + 4 + 8 + 8 bytes, little-endian
entry     name, type, value           a text is its length and its bytes; an array its type,
                                      its length and its elements
tensor    name, rank, sizes (the fastest first), type, offset
data      each tensor at its offset from here, which is a multiple of general.alignment
"""

from __future__ import annotations

import math
import struct
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define

from plica.ir.type.dtype import DType
from plica_lm.checkpoint import Array, Checkpoint, bytes_of, map_file, mapped, refuse
from plica_lm.format import FORMATS, BlockFormat
from plica_lm.tokenizer import from_metadata
from plica_lm.weight import Format, Weight

VERSIONS: Final = (2, 3)
MAX_RANK: Final = 4
DEEPEST: Final = 4  # arrays in arrays
TEXT: Final = 8
ARRAY: Final = 9
SCALARS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""The types of values that are single numbers, as `struct` writes them."""

# fmt: off
TYPES: Final[dict[int, str]] = {
    0: "f32", 1: "f16", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16",
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
    40: "NVFP4", 41: "Q1_0",
}
# fmt: on
"""The types of tensors, by their number."""


def open_gguf(path: str | Path) -> Checkpoint:
    """The checkpoint of a file."""
    file = _Reader(Path(path), map_file(Path(path)))
    if (magic := file.bytes(4)) != b"GGUF":
        refuse(file.path, "The file is not a GGUF file.", "b'GGUF'", str(magic))
    if (version := file.number("I")) not in VERSIONS:
        refuse(file.path, "The file has another version.", "2 or 3, little-endian", str(version))
    tensors, entries = file.count(24), file.count(13)
    metadata: dict[str, Any] = {}  # Any: whatever the file says
    for _ in range(entries):
        name = file.text()
        if name in metadata:
            refuse(file.path, "An entry stands twice.", "each name once", name)
        metadata[name] = file.value(file.number("I"))
    found = [_described(file) for _ in range(tensors)]
    weights = _placed(file, found, metadata.get("general.alignment", 32))
    return Checkpoint(metadata, weights, partial(from_metadata, metadata))


def _described(file: _Reader) -> tuple[str, tuple[int, ...], Format, int]:
    """The description of a tensor."""
    name, rank = file.text(), file.number("I")
    if rank > MAX_RANK:
        refuse(file.path, f"The tensor {name} has too many axes.", f"at most {MAX_RANK} axes",
               f"{rank} axes")  # fmt: skip
    shape = tuple([file.number("Q") for _ in range(rank)][::-1])
    kind, offset = file.number("I"), file.number("Q")
    if (known := TYPES.get(kind)) is None:
        expected = ", ".join(TYPES.values())
        refuse(file.path, f"The tensor {name} has an unknown type.", expected, f"number {kind}")
    of = FORMATS[known] if known in FORMATS else DType(known)
    if isinstance(of, BlockFormat) and (not shape or shape[-1] % of.elements):
        expected = f"rows of whole blocks of {of.elements}"
        refuse(file.path, f"The tensor {name} is not made of blocks.", expected, str(shape))
    return name, shape, of, offset


def _placed(file: _Reader, found: list[Any], alignment: Any) -> dict[str, Weight]:
    """The tensors, checked to be inside the file and disjoint. Any: as in the file."""
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        refuse(file.path, "general.alignment is not valid.", "a power of two", str(alignment))
    start = -(-file.at // alignment) * alignment
    weights: dict[str, Weight] = {}
    end = 0
    for name, shape, of, offset in sorted(found, key=lambda each: each[3]):
        size = math.prod(bytes_of(shape, of))
        if offset % alignment or offset < end:
            expected = f"a multiple of {alignment}, from {end} on"
            refuse(file.path, f"The tensor {name} has a wrong offset.", expected, str(offset))
        end = offset + size
        if start + end > len(file.data):
            found_, whole = str(start + end), str(len(file.data))
            refuse(file.path, f"The tensor {name} ends behind the file.", f"at most byte {whole}",
                   f"byte {found_}")  # fmt: skip
        if name in weights:
            refuse(file.path, "Two tensors have one name.", "one", name)
        weights[name] = mapped(file.data, start + offset, name, shape, of)
    return weights


@define
class _Reader:
    """A bounds-checked position in a file that advances with reads."""

    path: Path
    data: Array
    at: int = 0

    def bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            left = f"at most {len(self.data) - self.at} bytes"
            refuse(
                self.path, f"The file ends early, at byte {len(self.data)}.", left, f"{size} bytes"
            )
        self.at += size
        return self.data[self.at - size : self.at].tobytes()

    def number(self, code: str) -> Any:
        (found,) = struct.unpack(f"<{code}", self.bytes(struct.calcsize(f"<{code}")))
        return found

    def count(self, least: int) -> int:
        """The number of following items, each of at least `least` bytes."""
        found = int(self.number("Q"))
        if found * least > len(self.data) - self.at:
            most = f"at most {(len(self.data) - self.at) // least}"
            refuse(self.path, "More is announced than the file can hold.", most, str(found))
        return found

    def text(self) -> str:
        found = self.bytes(self.count(1))
        try:
            return found.decode()
        except UnicodeDecodeError:
            refuse(self.path, "A text is not UTF-8.", "UTF-8", str(found[:40]))

    def value(self, kind: int, depth: int = 0) -> Any:  # Any: whatever the file says
        if (code := SCALARS.get(kind)) is not None:
            return self.number(code)
        if kind == TEXT:
            return self.text()
        if kind != ARRAY or depth == DEEPEST:
            refuse(self.path, "An entry has an unknown type.", "0 to 12", str(kind))
        inner = self.number("I")
        if (code := SCALARS.get(inner)) is None:
            return [self.value(inner, depth + 1) for _ in range(self.count(8))]
        size = struct.calcsize(code)
        return np.frombuffer(self.bytes(self.count(size) * size), f"<{code}").tolist()
