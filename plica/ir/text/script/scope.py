"""Scopes: the meaning of a name at a place of a text.

>>> scope = NameScope(Nowhere())
>>> mark = scope.mark()
>>> scope.bind("x", Var(scope.fresh("x"), None))
>>> scope.find("x").name
Name(hint='x', index=0)
>>> scope.leave(mark)
>>> scope.find("x") is None
True
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

import attrs

from plica.core import Name
from plica.ir.graph.expression import Constructor, Expr, Var
from plica.ir.graph.module import DataDef, constructors
from plica.ir.loop.scalar import ScalarVar
from plica.ir.text.trail import Trail
from plica.ir.text.word import BUILTINS, KERNEL_WORDS, SCRIPT_WORDS
from plica.ir.type import DataName, Type, TypeVar

__all__ = [
    "Data", "DeferredRegion", "Local", "Meaning", "NameScope", "Nowhere", "Outer", "Var", "Word",
]  # fmt: skip


@attrs.frozen
class Word:
    """A word of the language: `f32`, `op`, `op.add`, `plica.function` …"""

    path: str


class Data:
    """A data type that can be named; its definition is read on demand."""

    def __init__(self, name: DataName, arity: int, define: Callable[[], DataDef]) -> None:
        self.name = name
        self.arity = arity
        self._define = define
        self._definition: DataDef | None = None

    def definition(self) -> DataDef:
        """The definition of the type."""
        if self._definition is None:
            self._definition = self._define()
        return self._definition

    def constructors(self) -> tuple[Constructor, ...]:
        """Its constructors as expressions."""
        return constructors(self.name, self.definition())


class DeferredRegion:
    """Statements that are read where their name is used."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.value: Expr | None = None  # once it has been read
        self.needs: dict[str, tuple[Local, int]] = {}  # what it found outside itself
        self.start = 0
        self.active = False


Meaning: TypeAlias = Expr | Data | Type | Word
Local: TypeAlias = Expr | DeferredRegion | ScalarVar | TypeVar


class Outer(Protocol):
    """The environment of a function."""

    def find(self, name: str) -> Meaning | None:
        """The meaning of a name here, or None."""

    def constructors(self, name: str) -> list[Constructor]:
        """The constructors of that name, of all data types that can be named."""

    def plain(self, name: str) -> object | None:
        """The plain data (a string, a tuple of numbers …) of that name."""

    def known(self) -> Iterable[str]:
        """The names that mean something, for suggestions."""


class Nowhere:
    """Outside, where only words are known."""

    def find(self, name: str) -> Meaning | None:
        """Nothing."""
        return None

    def constructors(self, name: str) -> list[Constructor]:
        """None."""
        return []

    def plain(self, name: str) -> object | None:
        """Nothing."""
        return None

    def known(self) -> Iterable[str]:
        """None."""
        return ()


_ROOTS: Final = {"plica": "plica", "op": "op", "nn": "op.nn", "script": "script"}

_PYTHONIC: Final = {"bool_": "bool"}
"""Words that `plica.script` has to call otherwise, since Python has the name already."""


def word(name: str) -> Word | None:
    """The word of that name, which needs no import."""
    if name in _ROOTS:
        return Word(_ROOTS[name])
    name = _PYTHONIC.get(name, name)
    return Word(name) if name in SCRIPT_WORDS or name in BUILTINS else None


def inside(of: Word, name: str) -> Word | None:
    """The word `of.name`."""
    if of.path == "plica":
        return Word(_ROOTS[name]) if name in ("op", "script") else Word(f"plica.{name}")
    if of.path == "script":
        name = _PYTHONIC.get(name, name)
        return Word(name) if name in SCRIPT_WORDS or name in KERNEL_WORDS else None
    return Word(f"{of.path}.{name}") if of.path.partition(".")[0] == "op" else None


class Scoped(Protocol):
    """The names of a function or a kernel, and those around it."""

    outer: Outer

    def find(self, name: str) -> object | None:
        """What the function itself binds under this name, or None."""


def meaning(node: ast.expr, scope: Scoped) -> Meaning | None:
    """The meaning of a dotted name outside the function, or None."""
    steps: list[str] = []
    while isinstance(node, ast.Attribute):
        steps.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or scope.find(node.id) is not None:
        return None
    found: Meaning | None = scope.outer.find(node.id)
    if found is None:
        found = word(node.id)
    for step in reversed(steps):
        found = inside(found, step) if isinstance(found, Word) else None
    return found


class NameScope(Trail[str, "tuple[Local, int]"]):
    """The names of one function while it is read, each with how many were bound before.

    Dims and types are stored in the same table under names that are no identifiers: `dim n` and
    `type A`.
    """

    def __init__(self, outer: Outer) -> None:
        super().__init__()
        self.outer = outer
        self.regions: list[DeferredRegion] = []  # those being read, innermost last
        self._used: dict[str, int] = {}

    def fresh(self, hint: str, kind: str = "") -> Name:
        """A name that no other variable of this kind in this function has."""
        index = self._used.get(kind + hint, 0)
        self._used[kind + hint] = index + 1
        return Name(hint, index)

    def bind(self, name: str, meaning: Local) -> None:
        """From here on `name` has this meaning."""
        self.put(name, (meaning, self.mark()))

    def find(self, name: str) -> Local | None:
        """The function's own binding of `name`."""
        if (entry := self.table.get(name)) is None:
            return None
        if self.regions and entry[1] < self.regions[-1].start:
            self.regions[-1].needs[name] = entry
        return entry[0]

    def enter(self, region: DeferredRegion) -> None:
        """Begin to read a region here."""
        region.active = True
        region.start = self.mark()
        self.regions.append(region)

    def finish(self, region: DeferredRegion, value: Expr) -> None:
        """The region is read; what it needed, the region around it may need as well."""
        self.leave(region.start)
        self.regions.pop()
        region.active = False
        region.value = value
        if self.regions:
            around = self.regions[-1]
            for name, entry in region.needs.items():
                if entry[1] < around.start:
                    around.needs[name] = entry

    def still_fits(self, region: DeferredRegion) -> bool:
        """Whether every name a region used means here what it meant where it was read."""
        return all(
            name in self.table and self.table[name][0] is meaning
            for name, (meaning, _) in region.needs.items()
        )

    def known(self) -> list[str]:
        """The names that mean something here, for suggestions."""
        local = [name for name in self.table if " " not in name]
        return [*local, *self.outer.known(), *SCRIPT_WORDS, *_ROOTS]

    def known_dims(self) -> list[str]:
        """The dims that can be named here, for suggestions."""
        return [name[4:] for name in self.table if name.startswith("dim ")]

    def known_types(self) -> list[str]:
        """The type variables that can be named here, for suggestions."""
        return [name[5:] for name in self.table if name.startswith("type ")]
