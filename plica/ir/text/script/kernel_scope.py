"""Names inside a kernel: what each means at a place of its text.

>>> from plica.ir.type.dtype import i64
>>> scope = KernelScope(Nowhere())
>>> mark = scope.mark()
>>> first = scope.variable("i", "loop", i64)
>>> scope.variable("i", "loop", i64).name
Name(hint='i', index=1)
>>> scope.leave(mark)
>>> scope.variable("i", "loop", i64) is first
True
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final, Literal, TypeAlias

import attrs

from plica.core import Name, fresh
from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar
from plica.ir.text.script.scope import Nowhere, Outer
from plica.ir.text.word import DTYPE_WORDS, KERNEL_WORDS
from plica.ir.type import DType

__all__ = ["Bound", "KernelScope", "Nowhere"]

What: TypeAlias = Literal[
    "dim", "buffer", "loop", "block variable", "axis", "let", "alias", "region"
]

ARTICLE: Final = {"axis": "an axis", "alias": "a shared term"}
"""The noun for a bound name, if it is not its keyword after `a`."""


@attrs.frozen(eq=False)
class Bound:
    """The meaning of a name: a variable, a buffer, an alias of a term, or statements."""

    what: What
    term: Scalar | Buffer | None  # None where something was wrong with it
    region: ast.FunctionDef | None = None

    def __str__(self) -> str:
        return ARTICLE.get(self.what, f"a {self.what}")


class KernelScope:
    """The names of one kernel while it is read."""

    def __init__(self, outer: Outer) -> None:
        self.outer = outer
        self.extents: dict[ScalarVar, Scalar] = {}  # of each loop and block variable
        self.views: dict[Buffer, tuple[Buffer, Scalar]] = {}  # what each is of, where it begins
        self._table: dict[str, Bound] = {}
        self._active: Counter[Name] = Counter()
        self._trail: list[tuple[str, Bound | None, Name | None]] = []

    def find(self, name: str) -> Bound | None:
        """The kernel's own binding of `name`."""
        return self._table.get(name)

    def mark(self) -> int:
        """The current position, to return to with `leave`."""
        return len(self._trail)

    def leave(self, mark: int) -> None:
        """Removes the bindings made since `mark`."""
        while len(self._trail) > mark:
            text, before, name = self._trail.pop()
            if before is None:
                del self._table[text]
            else:
                self._table[text] = before
            if name is not None:
                self._active[name] -= 1

    def bind(self, text: str, bound: Bound, name: Name | None = None) -> None:
        """From here on `text` has this meaning."""
        self._trail.append((text, self._table.get(text), name))
        self._table[text] = bound
        if name is not None:
            self._active[name] += 1

    def free(self, hint: str) -> Name:
        """A name like the hint that no variable in scope has."""
        return fresh(Name(hint), _Positive(self._active))

    def variable(self, text: str, what: What, dtype: DType, hint: str | None = None) -> ScalarVar:
        """A variable, called `text` from here on."""
        variable = ScalarVar(self.free(hint or text), dtype)
        self.extents.pop(variable, None)  # a loop elsewhere had that name
        self.bind(text, Bound(what, variable), variable.name)
        return variable

    def known(self) -> list[str]:
        """The names that mean something here, for suggestions."""
        return [*self._table, *DTYPE_WORDS, *KERNEL_WORDS]

    def buffers(self) -> list[str]:
        """The names of buffers, for suggestions."""
        return [text for text, bound in self._table.items() if bound.what == "buffer"]


class _Positive:
    """The keys of a counter that are counted."""

    def __init__(self, counts: Counter[Name]) -> None:
        self.counts = counts

    def __contains__(self, name: object) -> bool:
        return isinstance(name, Name) and self.counts[name] > 0
