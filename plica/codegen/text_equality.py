"""Equality of texts of kernels up to the names of loops and buffers.

Names depend on how a kernel came about, and mean nothing; nor does where a long head is broken,
which depends on their length.  Everything else is compared: words of the language, operators,
numbers, indentation, and which names are the same.

>>> first_difference("for i in grid(4):\\n    x[i] = 0", "for j in grid(4):\\n    y[j] = 0")
>>> first_difference("x[i] = max(i, 0)", "x[i] = min(i, 0)")
('x[i] = max(i, 0)', 'x[i] = min(i, 0)')
>>> first_difference("x[i] = y[i]", "x[i] = x[i]")
('x[i] = y[i]', 'x[i] = x[i]')
>>> first_difference("def f(x, y):\\n    x[0] = 0", "def f(\\n    x,\\n    y,\\n):\\n    x[0] = 0")
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from plica.ir.loop.scalar_table import ROWS
from plica.ir.text.word import TAKEN_IN_KERNELS
from plica.ir.type.dtype import DTYPES

_TOKEN: Final = re.compile(r'"[^"]*"|[^\W\d]\w*|\S')
_IS_NAME: Final = re.compile(r"[^\W\d]\w*")


@lru_cache(maxsize=1)
def words() -> frozenset[str]:
    """The words of the language, which stand for themselves."""
    own = {name for row in ROWS.values() for name in (row.name, row.word) if name}
    kinds = {each.name for each in DTYPES}
    return frozenset({*own, *kinds, *TAKEN_IN_KERNELS, *keyword.kwlist, "plica", "range"})


def first_difference(one: str, two: str) -> tuple[str, str] | None:
    """The first lines at which two texts differ by more than names, None where they do not."""
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for left, right in zip_longest(_lines(one), _lines(two), fillvalue=""):
        if not _same(left, right, there, back):
            return left.strip(), right.strip()
    return None


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; what stands in parentheses is one of them."""
    inside: list[str] = []
    for line in text.splitlines():
        if line.endswith("("):
            inside = [line]
        elif inside and line.lstrip().startswith(")"):
            yield inside[0] + " ".join(inside[1:]).removesuffix(",") + line.lstrip()
            inside = []
        elif inside:
            inside.append(line.strip())
        else:
            yield line
    yield from inside


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _same(left: str, right: str, there: dict[str, str], back: dict[str, str]) -> bool:
    mine, theirs = _TOKEN.findall(left), _TOKEN.findall(right)
    if len(mine) != len(theirs) or _indent(left) != _indent(right):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a in words() or b in words() or not _IS_NAME.fullmatch(a) or not _IS_NAME.fullmatch(b):
            if a != b:
                return False
        elif there.setdefault(a, b) != b or back.setdefault(b, a) != a:
            return False
    return True
