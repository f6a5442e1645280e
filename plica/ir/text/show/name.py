"""Names in print: one identifier for each variable, drawn from its hint.

>>> supply = IdentifierSupply({"op"})
>>> [supply.draw(Name(hint)) for hint in ("x", "x", "op", "lambda", "a b")]
['x', 'x_1', 'op_1', 'lambda_', 'v_a_b']

A name that was printed and read back has its printed form as hint, and keeps it.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Container, Iterable
from typing import Final

from plica.core import Name
from plica.ir.text.word import is_reserved

_UNFIT: Final = re.compile(r"[^0-9A-Za-z_]")


class IdentifierSupply:
    """Gives each identifier once, and none that an outer supply has given before."""

    def __init__(self, taken: Iterable[str], outer: IdentifierSupply | None = None) -> None:
        self._taken = set(taken)
        self._outer: Container[str] = () if outer is None else outer._taken
        self._next: dict[str, int] = {}

    def draw(self, name: Name) -> str:
        """The unused identifier most similar to `name`."""
        base = spelling(name)
        text, index = base, self._next.get(base, 1)
        while text in self._taken or text in self._outer:
            text = f"{base}_{index}"
            index += 1
        self._next[base] = index
        self._taken.add(text)
        return text


def spelling(name: Name) -> str:
    """The name as an identifier a variable may have; `spelling` of a spelling is itself."""
    text = str(name)
    if text.isascii() and text.isidentifier():
        if keyword.iskeyword(text):
            return f"{text}_"
        return f"v{text}" if text == "_" or is_reserved(text) else text
    # Python normalises identifiers to this form: any other would change when read back.
    if text.isidentifier() and unicodedata.normalize("NFKC", text) == text:
        return text
    return "v_" + _UNFIT.sub("_", text)
