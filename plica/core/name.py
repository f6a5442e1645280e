"""Names: what a person reads; no part of a term's identity.

A name is a hint and an index that distinguishes equal hints. Names are drawn relative to those
already in use, never from a counter, and never enter a digest.

>>> fresh(Name("x"), {Name("x"), Name("x", 1)})
Name(hint='x', index=2)
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Name(NamedTuple):
    """A readable hint, and an index that makes it unique in its scope."""

    hint: str
    index: int = 0  # type: ignore[assignment]  # tuples have a method of this name

    def __str__(self) -> str:
        return self.hint if self.index == 0 else f"{self.hint}_{self.index}"


def fresh(like: Name, used: Container[object]) -> Name:
    """The first name with the hint of `like` that is not used."""
    index = like.index
    while (name := Name(like.hint, index)) in used:
        index += 1
    return name
