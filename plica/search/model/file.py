"""Model files: a model as one JSON text with a version and exact numbers.

>>> text = written("example", {"rounds": 3}, {"weights": np.array([[0.5, 0.25]])}, b"xyz")
>>> read(text).fields, read(text).arrays["weights"].tolist(), read(text).blob
({'rounds': 3}, [[0.5, 0.25]], b'xyz')

A text that is damaged, or from a newer version, is refused: `Malformed`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import Malformed
from plica.runtime.error import Diagnostic
from plica.search.feature.layout import Floats

FORMAT: Final = "plica-model"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 28  # bytes of a model file, at most


@frozen(eq=False)
class File:
    """The content of a model file."""

    kind: str
    fields: Mapping[str, int | float]
    arrays: Mapping[str, Floats]
    blob: bytes


def written(
    kind: str,
    fields: Mapping[str, int | float],
    arrays: Mapping[str, Floats] | None = None,
    blob: bytes = b"",
) -> bytes:
    """The bytes of a file."""
    every = {
        name: {"shape": list(array.shape), "data": _text(array.astype("<f8").tobytes())}
        for name, array in (arrays or {}).items()
    }
    whole = {"format": FORMAT, "version": VERSION, "kind": kind, "fields": dict(fields)}
    return json.dumps({**whole, "arrays": every, "blob": _text(blob)}, sort_keys=True).encode()


def read(data: bytes) -> File:
    """The content of a file; raises `Malformed`."""
    if len(data) > MAX_FILE_BYTES:
        raise malformed(
            "A model file is too large.", f"at most {MAX_FILE_BYTES} bytes", str(len(data))
        )
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise malformed("A model file is no JSON text.", "JSON", str(error)) from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise malformed("This is no model file.", FORMAT, repr(whole)[:40])
    version = whole.get("version")
    if version != VERSION:
        code = "newer-version" if isinstance(version, int) and version > VERSION else "bad-json"
        message = "A model file is of another version."
        raise Malformed(Diagnostic(code, message, None, str(VERSION), repr(version)[:40]))
    kind, fields = whole.get("kind"), whole.get("fields")
    arrays, blob = whole.get("arrays"), whole.get("blob")
    if not isinstance(kind, str) or not isinstance(fields, dict) or not isinstance(arrays, dict):
        raise malformed("A model file is incomplete.", "kind, fields, arrays", "others")
    if not all(type(field) in (int, float) for field in fields.values()):
        raise malformed("The fields of a model are numbers.", "numbers", repr(fields)[:80])
    return File(kind, fields, {name: _array(each) for name, each in arrays.items()}, _bytes(blob))


def malformed(message: str, expected: str, found: str) -> Malformed:
    """The refusal of a file."""
    return Malformed(Diagnostic("bad-json", message, None, expected, found))


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(text: Any) -> bytes:  # anything JSON holds
    if not isinstance(text, str):
        raise malformed("Data in a model file is text.", "base64", repr(text)[:40])
    try:
        return b64decode(text, validate=True)
    except (NoBase64, ValueError) as error:
        raise malformed("Data in a model file is damaged.", "base64", text[:40]) from error


def _array(what: Any) -> Floats:  # as above
    if not isinstance(what, dict) or not isinstance(what.get("shape"), list):
        raise malformed("An array of a model file has no shape.", "a list", repr(what)[:40])
    shape, data = what["shape"], _bytes(what.get("data"))
    if not all(type(each) is int and each >= 0 for each in shape) or 8 * prod(shape) != len(data):
        raise malformed("An array of a model file has another size.", str(shape), str(len(data)))
    return np.frombuffer(data, dtype="<f8").reshape(shape).astype(np.float64)
