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
from typing import Final, Literal, TypeAlias, TypeGuard

import attrs

from plica.core import Name, fresh
from plica.ir.loop.scalar import Buffer, Scalar, ScalarVar
from plica.ir.text.script.scope import Nowhere, Outer
from plica.ir.text.trail import Trail
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


class KernelScope(Trail["str | Name", Bound]):
    """The names of one kernel while it is read: what texts mean, and the variables in scope."""

    def __init__(self, outer: Outer) -> None:
        super().__init__()
        self.outer = outer
        self.extents: dict[ScalarVar, Scalar] = {}  # of each loop and block variable
        self.views: dict[Buffer, tuple[Buffer, Scalar]] = {}  # what each is of, where it begins

    def find(self, name: str) -> Bound | None:
        """The kernel's own binding of `name`."""
        return self.table.get(name)

    def bind(self, text: str, bound: Bound, name: Name | None = None) -> None:
        """From here on `text` has this meaning, and a variable this name."""
        self.put(text, bound)
        if name is not None:
            self.put(name, bound)

    def free(self, hint: str) -> Name:
        """A name like the hint that no variable in scope has."""
        return fresh(Name(hint), self.table)

    def variable(self, text: str, what: What, dtype: DType, hint: str | None = None) -> ScalarVar:
        """A variable, called `text` from here on."""
        variable = ScalarVar(self.free(hint or text), dtype)
        self.extents.pop(variable, None)  # a loop elsewhere had that name
        self.bind(text, Bound(what, variable), variable.name)
        return variable

    def known(self) -> list[str]:
        """The names that mean something here, for suggestions."""
        return [*filter(is_text, self.table), *DTYPE_WORDS, *KERNEL_WORDS]

    def buffers(self) -> list[str]:
        """The names of buffers, for suggestions."""
        names = self.table.items()
        return [name for name, bound in names if is_text(name) and bound.what == "buffer"]


def is_text(name: str | Name) -> TypeGuard[str]:
    """Whether a key of a scope is a text, not the name of a variable."""
    return isinstance(name, str)
