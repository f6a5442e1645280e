"""Refusals: the one function that makes the errors of this package, and whole files of text.

Each states the expected and actual state and what to do.

>>> print(refusal("input-value", "top_p is out of range.", "0 to 1", "2", "Use 0.9."))
top_p is out of range. [input-value]
  expected: 0 to 1
  found: 2
  suggestion: Use 0.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from plica.core import did_you_mean
from plica.core.diagnostic import Malformed
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError, UnsupportedError

KINDS: Final[Mapping[str, type[PlicaError]]] = {
    "bad-model": Malformed, "unsupported": UnsupportedError, "busy": PlicaError,
}  # fmt: skip
"""The class of the error of each code; all others are about input."""

DAMAGED: Final = "Download or convert the model again."
MAX_TEXT_BYTES: Final = 1 << 28


def refusal(  # noqa: PLR0917  # the parts of a diagnostic
    code: str, message: str, expected: str, found: object, suggestion: str,
    file: Path | None = None, at: str | None = None,
) -> PlicaError:  # fmt: skip
    """The error of a refusal, at a file or a named field."""
    shown = found if isinstance(found, str) else repr(found)
    shown = f"{shown[:197]}..." if len(shown) > 200 else shown
    place = (
        None if file is None and at is None else Place(None if file is None else str(file), node=at)
    )
    return KINDS.get(code, InputError)(
        Diagnostic(code, message, place, expected, shown, suggestion)
    )


def unsupported(what: str, found: object, known: Iterable[str]) -> PlicaError:
    """The refusal of a word that is not in a table."""
    names = sorted(known)
    hint = did_you_mean(str(found), names) or "Use one of the expected ones."
    return refusal("unsupported", f"{what} {found!r} is not supported.", ", ".join(names),
                   found, hint)  # fmt: skip


def read_text(path: Path) -> str:
    """A file of UTF-8."""
    try:
        if (size := path.stat().st_size) > MAX_TEXT_BYTES:
            expected = f"at most {MAX_TEXT_BYTES} bytes"
            raise refusal("too-large", "The file is too large.", expected, f"{size} bytes",
                          DAMAGED, path)  # fmt: skip
        return path.read_text(encoding="utf-8")
    except OSError as error:
        why = str(error.strerror or error)
        raise refusal("bad-model", f"{path.name} cannot be read.", "a readable file", why,
                      f"Give a folder that has a readable {path.name}.",
                      path) from None  # fmt: skip
    except UnicodeDecodeError as error:
        raise refusal("bad-model", f"{path.name} is not UTF-8.", "text in UTF-8",
                      f"byte {error.object[error.start]:#04x} at {error.start}", DAMAGED,
                      path) from None  # fmt: skip


def read_json(text: str | bytes, path: Path) -> dict[str, Any]:  # Any: JSON
    """The JSON object of a file, in which each name occurs once."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise refusal("bad-model", "A name occurs twice in a JSON object.", "each name once",
                          "one twice", DAMAGED, path)  # fmt: skip
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise refusal("bad-model", f"{path.name} is not JSON.", "a JSON object",
                      f"{type(error).__name__}: {error}", DAMAGED, path) from None  # fmt: skip
    if not isinstance(found, dict):
        raise refusal("bad-model", f"{path.name} is not a JSON object.", "a JSON object",
                      type(found).__name__, DAMAGED, path)  # fmt: skip
    return found
