"""Modules: definitions that may use one another.

    Module     ::= Module(names, values, main)
    Definition ::= Function | DataDef(types, constructors) | Extern(symbol, type, gradient) | Kernel

`names` and `values` are parallel and sorted by name.  Names of definitions, constructors and
variables never enter the digest: the definitions are numbered from `main` in order of use.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from attrs import frozen

from plica.core import Name, Term, digest, ill_formed, post_order
from plica.core.diagnostic import no_main
from plica.ir.graph.expression import Constructor, Expr, Function, Var
from plica.ir.loop.statement import Kernel
from plica.ir.type.term import DataName, DataType, FuncType, Type, TypeVar
from plica.runtime.late import late

WRITTEN = "ir.module"  # the path that its terms are written down under


@frozen(eq=False)
class ConstructorDef(Term):
    """One way to build a value of a data type."""

    name: Name
    fields: tuple[Type, ...]


@frozen(eq=False)
class DataDef(Term):
    """An algebraic data type."""

    binds = (("types", ("constructors",)),)
    types: tuple[TypeVar, ...]
    constructors: tuple[ConstructorDef, ...]


@frozen(eq=False)
class Extern(Term):
    """A function defined elsewhere, identified by symbol and type.

    `gradient` is the symbol of another one: from the arguments and a cotangent per float result to
    a cotangent per float argument.
    """

    symbol: str
    type: FuncType
    gradient: str | None = None


Definition: TypeAlias = Function | DataDef | Extern | Kernel
Defined: TypeAlias = Var | DataName


@frozen(eq=False)
class Module(Term):
    """Definitions, and the function a compiled module runs."""

    binds = (("names", ("values", "main")),)
    names: tuple[Defined, ...]
    values: tuple[Definition, ...]
    main: Var | None

    @staticmethod
    def normal(
        names: tuple[Defined, ...], values: tuple[Definition, ...], main: Var | None
    ) -> tuple[tuple[Defined, ...], tuple[Definition, ...], Var | None]:
        if len(names) != len(values):
            raise ill_formed(f"{len(names)} names for {len(values)} definitions.")
        pairs = sorted(zip(names, values, strict=True), key=lambda pair: pair[0].name)
        used = [name.name for name, _ in pairs]
        if len(set(used)) != len(used):
            twice = next(name for name in used if used.count(name) > 1)
            raise ill_formed(f"The module defines {twice} twice.")
        return tuple(name for name, _ in pairs), tuple(value for _, value in pairs), main

    def items(self) -> tuple[tuple[Defined, Definition], ...]:
        """The definitions with their names, sorted."""
        return tuple(zip(self.names, self.values, strict=True))

    def definitions(self) -> Mapping[Term, Definition]:
        """The definition of each defined variable."""
        return dict(zip(self.names, self.values, strict=True))

    def functions(self) -> tuple[tuple[Var, Function], ...]:
        """The graph functions with their names."""
        return tuple(
            (name, value)
            for name, value in self.items()
            if isinstance(name, Var) and isinstance(value, Function)
        )

    def main_function(self) -> Function:
        """The function a compiled module runs."""
        for name, value in self.functions():
            if name is self.main:
                return value
        raise no_main()

    def find(self, name: str) -> Definition | None:
        """The definition printed under this name."""
        return next((value for key, value in self.items() if str(key.name) == name), None)

    def canonical(self) -> Numbered:
        """The definitions ordered by first use from `main`, as the digest sees them."""
        return _numbered(self)

    def __str__(self) -> str:
        return str(late("plica.ir.text.show.module:show_module")(self).text)  # it needs the grammar


class MadeByNodes(NamedTuple):
    """The node names of a file in a topological order, with the results of each node, and the nodes
    that may index by data."""

    made: tuple[tuple[str, tuple[Expr, ...]], ...]
    selecting: tuple[str, ...]


MADE_BY_NODES: Final[WeakKeyDictionary[Module, MadeByNodes]] = WeakKeyDictionary()
"""Of modules that were read from files what their nodes made: terms hold no names
(`plica.ir.graph.node_name`)."""


def selecting_names(of: Module) -> tuple[str, ...]:
    """The nodes that may index by data; their compiled launches carry these names."""
    return MADE_BY_NODES[of].selecting if of in MADE_BY_NODES else ()


def module(definitions: Mapping[Defined, Definition], main: Var | None = None) -> Module:
    """A module from a mapping."""
    return Module(tuple(definitions), tuple(definitions.values()), main)


def main_module(
    function: Function, others: Mapping[Defined, Definition] = MappingProxyType({})
) -> Module:
    """A module with `function` as main, and other definitions."""
    main = Var(Name("main"), None)
    return module({**others, main: function}, main)


def constructors(name: DataName, data: DataDef) -> tuple[Constructor, ...]:
    """The constructors of a data type as expressions."""
    whole = DataType(name, data.types)
    return tuple(
        Constructor(name, i, constructor.name, FuncType((), data.types, constructor.fields, whole))
        for i, constructor in enumerate(data.constructors)
    )


@frozen(eq=False)
class Numbered(Term):
    """A module whose definitions stand in order of use; only digests see one."""

    binds = (("names", ("values", "main")),)
    names: tuple[Defined, ...]
    values: tuple[Definition, ...]
    main: Defined | None
    rest: tuple[Numbered, ...] = ()


def _numbered(of: Module) -> Numbered:
    table = of.definitions()
    order = {} if of.main is None else _reached(of.main, table)
    # Definitions unreachable from main have no order: each comes with what it reaches, sorted by
    # digest.
    rest = [_numbered_from(name, table) for name in of.names if name not in order]
    values = tuple(table[name] for name in order if name in table)
    return Numbered(tuple(order), values, of.main, tuple(sorted(rest, key=digest)))


def _numbered_from(name: Defined, table: Mapping[Term, Definition]) -> Numbered:
    order = _reached(name, table)
    return Numbered(tuple(order), tuple(table[each] for each in order), name)


def _reached(root: Defined, table: Mapping[Term, Definition]) -> dict[Defined, None]:
    """What `root` uses, directly or not, breadth first in order of occurrence."""
    order: dict[Defined, None] = {root: None}
    queue = [root]
    for name in queue:
        for node in post_order(table[name]) if name in table else ():
            if isinstance(node, Var | DataName) and node in table and node not in order:
                order[node] = None
                queue.append(node)
    return order
