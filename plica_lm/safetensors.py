"""Hugging Face checkpoints: one or several `safetensors` files with `config.json`.

A file is the length of a header, the header as JSON, and the data of its tensors without gaps:

    8 bytes   n          {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, …}
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from plica.ir.type.dtype import DType
from plica_lm.checkpoint import Checkpoint, map_file, mapped, refuse
from plica_lm.refusal import read_json, read_text
from plica_lm.tokenizer import from_folder
from plica_lm.weight import Weight

DTYPES: Final = {
    "BOOL": "bool", "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16",
    **{f"{sign}{n}": f"{sign.lower()}{n}" for sign in "IU" for n in (8, 16, 32, 64)},
    "F8_E4M3": "f8e4m3fn", "F8_E5M2": "f8e5m2",
}  # fmt: skip
HEAD: Final = 8
MAX_HEADER_BYTES: Final = 100_000_000  # the bytes of a header, at most, as the format says
INDEX: Final = "model.safetensors.index.json"


def open_safetensors(path: str | Path) -> Checkpoint:
    """The checkpoint of a folder, or of one file with its siblings."""
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    files = [given] if given.is_file() or not given.is_dir() else _files(folder)
    weights: dict[str, Weight] = {}
    for file in files:
        for weight in read_weights(file):
            if weight.name in weights:
                refuse(file, "Two files hold a tensor of one name.", "one", weight.name)
            weights[weight.name] = weight
    path = folder / "config.json"
    return Checkpoint(read_json(read_text(path), path), weights, partial(from_folder, folder))


def read_weights(path: Path) -> Iterator[Weight]:
    """The tensors of a file."""
    file = map_file(path)
    if len(file) < HEAD:
        refuse(path, "The file is too short for a header.", f"{HEAD} bytes", f"{len(file)} bytes")
    size = int.from_bytes(file[:HEAD].tobytes(), "little")
    if size > min(MAX_HEADER_BYTES, len(file) - HEAD):
        refuse(
            path, "The header does not fit.", f"at most {len(file) - HEAD} bytes", f"{size} bytes"
        )
    start = HEAD + size
    header = read_json(file[HEAD:start].tobytes(), path)
    header.pop("__metadata__", None)
    found = [(*_entry(path, name, entry), name) for name, entry in header.items()]
    end = 0
    for begin, stop, dtype, shape, name in sorted(found, key=lambda each: each[:2]):
        if begin != end:
            refuse(path, f"The tensor {name} overlaps another, or leaves a gap.", f"byte {end}",
                   f"byte {begin}")  # fmt: skip
        end = stop
        if start + end > len(file):
            refuse(path, f"The tensor {name} ends behind the file.", f"at most byte {len(file)}",
                   f"byte {start + end}")  # fmt: skip
        yield mapped(file, start + begin, name, shape, dtype)
    if start + end != len(file):
        refuse(path, "The file is longer than its tensors.", f"{start + end} bytes",
               f"{len(file)} bytes")  # fmt: skip


def _entry(path: Path, name: str, entry: Any) -> tuple[int, int, DType, tuple[int, ...]]:
    """The place and type of a tensor. Any: JSON data."""
    if not isinstance(entry, dict) or entry.get("dtype") not in DTYPES:
        known = entry.get("dtype") if isinstance(entry, dict) else entry
        refuse(path, f"The tensor {name} has an unknown dtype.", ", ".join(DTYPES), str(known))
    dtype = DType(DTYPES[entry["dtype"]])
    shape, offsets = entry.get("shape", 0), entry.get("data_offsets", 0)
    for what, each in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(each, list) or not all(type(n) is int and n >= 0 for n in each):
            refuse(path, f"The tensor {name} has a wrong {what}.", "natural numbers", str(each))
    size = math.prod(shape) * dtype.bytes
    if len(offsets) != 2 or offsets[1] - offsets[0] != size:
        refuse(path, f"The tensor {name} has a wrong size.", f"{size} bytes", f"offsets {offsets}")
    return offsets[0], offsets[1], dtype, tuple(shape)


def _files(folder: Path) -> list[Path]:
    """The files of a folder: those of its index, or the only one."""
    if not (index := folder / INDEX).is_file():
        return [folder / "model.safetensors"]
    names = read_json(read_text(index), index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        refuse(index, "The index maps no names.", "an object weight_map", str(type(names)))
    files = sorted(set(names.values()))
    for file in files:
        if Path(file).name != file or file in ("", ".", ".."):
            refuse(index, "The index names a file outside of its folder.", "a name", file)
    return [folder / file for file in files]
