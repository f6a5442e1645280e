r"""Equality of texts of kernels up to the names of loops, buffers and open dims.

>>> first_difference("for i in grid(4):\n    x[i] = 0", "for j in grid(4):\n    y[j] = 0")
>>> first_difference("x[i] = max(i, 0)", "x[i] = min(i, 0)")
('x[i] = max(i, 0)', 'x[i] = min(i, 0)')
>>> first_difference("x[i] = y[i]", "x[i] = x[i]")
('x[i] = y[i]', 'x[i] = x[i]')
>>> first_difference(
...     "for i in range(4):\n    x[i] = 0\nfor i in range(4):\n    y[i] = 0",
...     "for i in range(4):\n    x[i] = 0\nfor j in range(4):\n    y[j] = 0",
... )
>>> first_difference('x: Buffer[("2*open_n",), f32]', 'x: Buffer[("2*open_m",), f32]')
>>> first_difference('for i in thread("x", 2):', 'for i in thread("y", 2):')
('for i in thread("x", 2):', 'for i in thread("y", 2):')
>>> first_difference("def f(x, y):\n    x[0] = 0", "def f(\n    x,\n    y,\n):\n    x[0] = 0")
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from plica.ir.graph.shape_specialisation import OPEN_PREFIX
from plica.ir.loop.scalar_table import ROWS
from plica.ir.text.word import TAKEN_IN_KERNELS
from plica.ir.type import DTYPES

_TOKEN: Final = re.compile(r'"[^"]*"|[^\W\d]\w*|\S')
_IS_NAME: Final = re.compile(r"[^\W\d]\w*")
_OPEN_DIM: Final = re.compile(rf"\b({OPEN_PREFIX}\w+)")
_BINDER: Final = re.compile(
    r"\s*(?P<loop>for )?(?P<names>\w+(?:, \w+)*) (?(loop)in|=) (?P<value>.*)"
)


@lru_cache(maxsize=1)
def words() -> frozenset[str]:
    """The words of the language, which stand for themselves."""
    own = {name for row in ROWS.values() for name in (row.name, row.word) if name}
    kinds = {dtype.name for dtype in DTYPES}
    return frozenset({*own, *kinds, *TAKEN_IN_KERNELS, *keyword.kwlist, "plica", "range"})


def first_difference(one: str, two: str) -> tuple[str, str] | None:
    """The first lines at which two texts differ by more than names, None where they do not."""
    names = _Names()
    for left, right in zip_longest(_lines(one), _lines(two), fillvalue=""):
        if left.strip():
            names.leave(_indent(left))
        if not _same(left, right, names):
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


class _Names:
    """Which name of one text is which of the other, here."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self.bound: list[tuple[int, str, str, str | None, str | None]] = []

    def agree(self, one: str, two: str) -> bool:
        """Whether two names stand for the same; those that are new do from now on."""
        return self.there.setdefault(one, two) == two and self.back.setdefault(two, one) == one

    def bind(self, one: str, two: str, inside: int) -> None:
        """Two names for something new, as long as lines are indented by so much."""
        self.bound.append((inside, one, two, self.there.get(one), self.back.get(two)))
        self.there[one], self.back[two] = two, one

    def leave(self, indent: int) -> None:
        """Forgets what is not known in a line that is indented by so much."""
        while self.bound and indent < self.bound[-1][0]:
            _, one, two, there, back = self.bound.pop()
            _put_back(self.there, one, there)
            _put_back(self.back, two, back)


def _put_back(names: dict[str, str], name: str, before: str | None) -> None:
    if before is None:
        del names[name]
    else:
        names[name] = before


def _same(left: str, right: str, names: _Names) -> bool:
    one, two = _BINDER.match(left), _BINDER.match(right)
    if (one is None) != (two is None) or _indent(left) != _indent(right):
        return False
    if one is None or two is None:
        return _same_tokens(left, right, names)
    mine, theirs = one["names"].split(", "), two["names"].split(", ")
    if len(mine) != len(theirs) or not _same_tokens(one["value"], two["value"], names):
        return False
    inside = _indent(left) + (one["loop"] is not None)
    for a, b in zip(mine, theirs, strict=True):
        names.bind(a, b, inside)
    return one["loop"] == two["loop"]


def _same_tokens(left: str, right: str, names: _Names) -> bool:
    mine, theirs = _TOKEN.findall(left), _TOKEN.findall(right)
    if len(mine) != len(theirs):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a[0] == b[0] == '"':
            if not _same_quoted(a, b, names):
                return False
        elif a in words() or b in words() or not _IS_NAME.fullmatch(a) or not _IS_NAME.fullmatch(b):
            if a != b:
                return False
        elif not names.agree(a, b):
            return False
    return True


def _same_quoted(left: str, right: str, names: _Names) -> bool:
    """Quoted texts are equal but for the open dims in them."""
    mine, theirs = _OPEN_DIM.split(left), _OPEN_DIM.split(right)  # between and dim, alternating
    return (
        len(mine) == len(theirs)
        and mine[::2] == theirs[::2]
        and all(names.agree(*pair) for pair in zip(mine[1::2], theirs[1::2], strict=True))
    )
