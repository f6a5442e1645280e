"""Sketches: the bounded `repr` of terms.

>>> from attrs import frozen
>>> from plica.core.term import Term
>>> @frozen(eq=False)
... class Nest(Term):
...     inside: tuple[object, ...]
>>> Nest((Nest(()), Nest(())))
Nest((Nest(()), Nest(())))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

MAX_CHARACTERS: Final = 400  # characters
LEVELS: Final = 4
WIDTH: Final = 6  # items of a tuple


def sketch(term: Any) -> str:
    """At most a few levels and a few hundred characters, whatever hangs below.

    Any: a term, whose class needs this function before it exists.
    """
    shown: list[str] = []
    length = 0
    for piece in _pieces(term, LEVELS):
        shown.append(piece)
        length += len(piece)
        if length > MAX_CHARACTERS:
            return "".join(shown)[: MAX_CHARACTERS - 5] + " ...)"
    return "".join(shown)


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """The pieces of a repr, generated lazily."""
    if hasattr(value, "_children"):
        yield f"{type(value).__name__}("
        if depth == 0:
            yield "..."
        else:
            for i, name in enumerate(type(value)._fields):
                yield ", " if i else ""
                yield from _pieces(getattr(value, name), depth - 1)
        yield ")"
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        yield "("
        for i, item in enumerate(value[:WIDTH]):
            yield ", " if i else ""
            yield from _pieces(item, depth)
        yield ", ...)" if len(value) > WIDTH else ")"
    elif isinstance(value, bytes | memoryview):
        yield f"<{len(value)} bytes>"
    elif isinstance(value, int) and value.bit_length() > 200:
        yield f"<an integer of {value.bit_length()} bits>"
    else:
        text = repr(value)
        yield text if len(text) <= 60 else text[:56] + " ..."
