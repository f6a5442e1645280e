"""Modules in print: text that reads back to the same module, with large constants in a separate
table.

The last graph function of a text is the module's main; without any it is the last kernel.

Distinct binders: in print every variable has one binder, and every node one scope.

>>> from plica.ir.graph.expression import Tuple, Var, const
>>> x = Var(Name("x"), None)
>>> both = Tuple((Let(x, const(1, "i32"), x), Let(x, const(2, "i32"), x)))
>>> [str(each.var.name) for each in distinct(both).items]
['x', 'x_1']

Laws: `alpha_equal(distinct(t), t)`; `distinct(distinct(t)) is distinct(t)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import attrs

from plica.core.binding import name_of, rename, substitute, variables_of
from plica.core.collector import paused
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term, rebuild
from plica.ir.graph.expression import Const, Expr, Function, Let, Match
from plica.ir.graph.module import DataDef, Defined, Definition, Extern, Module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Kernel
from plica.ir.text.show.attribute import string_text
from plica.ir.text.show.expression import Body
from plica.ir.text.show.kernel import kernel_lines
from plica.ir.text.show.layout import Parts, lay_out, parts
from plica.ir.text.show.name import IdentifierSupply
from plica.ir.text.show.statement import StatementWriter, dims_of, heading
from plica.ir.text.show.type import TypePrinter
from plica.ir.text.word import KERNEL_WORDS, MAIN, SCRIPT_WORDS, TAKEN_IN_KERNELS, VERSION, WORDS
from plica.ir.type import FuncType

_KINDS: Final = (DataDef, Extern, Kernel, Function)  # in this order the definitions stand


@attrs.frozen
class Source:
    """The text of a module, and the constants that are too big for it by their keys."""

    text: str
    constants: Mapping[str, Const]


def show_module(module: Module) -> Source:
    """The module as Python source.  `digest(from_text(*show_module(m))) == digest(m)`."""
    with paused():
        return _Printer(module).source()


def show_expr(of: Expr) -> str:
    """An expression; one that needs statements ends with a `return`."""
    with paused():
        expr = distinct(of)
        types = TypePrinter()
        lines, _ = _body(expr, parts(expr), IdentifierSupply(WORDS), types, None)
    only = lines[0].removeprefix("return ")
    return only if len(lines) == 1 else "\n".join(lines)


class _Printer:
    def __init__(self, module: Module) -> None:
        self.module = module
        has_kernels = any(isinstance(each, Kernel) for each in module.values)
        self.supply = IdentifierSupply(WORDS | TAKEN_IN_KERNELS if has_kernels else WORDS)
        self.types = TypePrinter()
        self.constants: dict[str, Const] = {}
        for each in module.names:
            self.types.names[each] = self.supply.draw(each.name)
        for name, value in module.items():
            if isinstance(value, DataDef):
                for index, def_ in enumerate(value.constructors):
                    word = self.supply.draw(def_.name)
                    self.types.constructors[name, index] = word  # type: ignore[index]  # a DataName

    def source(self) -> Source:
        main = self.module.main

        def place(item: tuple[Defined, Definition]) -> tuple[int, bool, str]:
            return _KINDS.index(type(item[1])), item[0] is main, self.types.names[item[0]]

        texts = [self._definition(*item) for item in sorted(self.module.items(), key=place)]
        items = self.module.items()
        kinds = [Function] if self.module.functions() else [Kernel]
        could = [name for name, value in items if type(value) in kinds]
        if could if main is None else all(name is not main for name in could):
            word = "None" if main is None else self.types.names.get(main, str(main.name))
            texts.append(f"{MAIN} = {word}")
        # The words are known only now that everything is printed.
        return Source("\n\n\n".join([self._header(bool(texts)), *texts]) + "\n", self.constants)

    def _header(self, used: bool) -> str:
        lines = [f"# plica {VERSION}", "from __future__ import annotations"]
        words = self.types.words
        if used:
            lines += ["", "import plica"]
        if "op" in words:
            lines.append("from plica import op")
        if "nn" in words:
            lines.append("from plica.op import nn")
        if script := sorted((words & (SCRIPT_WORDS | KERNEL_WORDS)) - {"bool"}):
            lines.append(f"from plica.script import {', '.join(script)}")
        return "\n".join(lines)

    def _definition(self, name: Defined, value: Definition) -> str:
        word = self.types.names[name]
        match value:
            case DataDef():
                return self._data(name, word, value)
            case Extern():
                symbol, of = string_text(value.symbol), self._extern(value.type)
                more = "" if value.gradient is None else string_text(value.gradient)
                return f"{word} = plica.extern({symbol}, {of}{more and f', gradient={more}'})"
            case Kernel():
                lines, words = kernel_lines(value, word, IdentifierSupply((), self.supply))
                self.types.words |= words
                return "\n".join(lines)
            case Function():
                return self._function(word, value)

    def _data(self, name: Defined, word: str, value: DataDef) -> str:
        types = TypePrinter(self.types)
        supply = IdentifierSupply((), self.supply)
        for type_var in value.types:
            types.names[type_var] = supply.draw(type_var.name)
        forall = " ".join([types.names[type_var] for type_var in value.types])
        lines = [f'@plica.data(forall="{forall}")' if forall else "@plica.data", f"class {word}:"]
        for index, each_ in enumerate(value.constructors):
            constructor = types.constructors[name, index]  # type: ignore[index]  # a DataName
            lines.append(f"    {constructor}: {types.show_tuple(each_.fields)}")
        return "\n".join(lines if value.constructors else [*lines, "    pass"])

    def _extern(self, of: FuncType) -> str:
        """The type of an extern: the dims in its parameters are bound without saying so."""
        if of.types or tuple(dims_of(of.params)) != of.dims:
            return self.types.show(of)
        types = TypePrinter(self.types)
        supply = IdentifierSupply({"min", "max"})
        for dim in of.dims:
            types.names[dim] = supply.draw(dim.name)
        return types.show(FuncType((), (), of.params, of.ret))

    def _function(self, word: str, value: Function) -> str:
        found = parts(value)
        function = distinct(value, self.module.names, found)
        if function is not value:
            found = parts(function)
        types = TypePrinter(self.types)
        lines, constants = _body(
            function.body, found, IdentifierSupply((), self.supply), types, function
        )
        self.constants |= constants
        head = heading(function, word, types, {}, "@plica.function")
        return "\n".join([*head, *lines])


def _body(
    value: Expr,
    found: Parts,
    supply: IdentifierSupply,
    types: TypePrinter,
    function: Function | None,
) -> tuple[list[str], dict[str, Const]]:
    """The lines of a function's body, or of an expression."""
    dims = IdentifierSupply({"min", "max"})
    owners: dict[ScalarVar, Function] = {}
    for node in found.binders:
        match node:
            case Function():
                for size in node.dims:
                    types.names[size] = dims.draw(size.name)
                    owners[size] = node
                for term in (*node.types, *node.params):
                    types.names[term] = supply.draw(name_of(term))
            case Let():
                types.names[node.var] = supply.draw(node.var.name)
            case Match():
                for clause in node.clauses:
                    for var in variables_of(clause.pattern):
                        types.names[var] = supply.draw(name_of(var))
    order = found.order if function is None else found.order[:-1]
    body = Body(lay_out(value, order), types, inferred=not found.surface)
    body.render()
    writer = StatementWriter(body, owners)
    return writer.lines(value, 0 if function is None else 1), body.constants


E = TypeVar("E", bound=Expr)
T = TypeVar("T", bound=Term)


def distinct(root: E, outer: Iterable[Term] = (), found: Parts | None = None) -> E:
    """The same term with different variables for different binders.

    `outer` are bound outside; `found` are the parts of the term, where they are known.
    """
    taken = set(outer)
    seen = set(taken)
    again: set[Term] = set()
    for node in (found or parts(root)).binders:
        for group in _bound(node):
            again.update([term for term in group if term in seen])
            seen.update(group)
    if not again:
        return root
    renamer = _Renamer(root, again, taken & again)
    return map_bottom_up(renamer.visit, root)


def _bound(node: Let | Function | Match) -> Iterator[list[Term]]:
    match node:
        case Let():
            yield [node.var]
        case Function():
            yield [*node.dims, *node.types, *node.params]
        case Match():
            for clause in node.clauses:
                yield variables_of(clause.pattern)


class _Renamer:
    def __init__(self, root: Term, again: set[Term], spent: set[Term]) -> None:
        self.again = again
        self.spent = spent  # whose first binder has been met
        self.used = {name_of(node) for node in post_order(root) if type(node).variable}
        self.next: dict[str, int] = {}

    def visit(self, node: Term) -> Term:
        match node:
            case Let():
                return self._rename(node, [node.var])
            case Function():
                outer = self._rename(node, [*node.dims, *node.types])
                return self._rename(outer, outer.params)
            case Match():
                new = [self._rename(each, variables_of(each.pattern)) for each in node.clauses]
                return rebuild(node, (node.value, *new))
            case _:
                return node

    def _rename(self, node: T, variables: Iterable[Term]) -> T:
        mapping: dict[Term, Term] = {}
        for variable in variables:
            if variable in self.spent:
                mapping[variable] = rename(variable, self._fresh(name_of(variable)))
            elif variable in self.again:
                self.spent.add(variable)
        if not mapping:
            return node
        return rebuild(node, tuple([substitute(kid, mapping) for kid in node._children]))

    def _fresh(self, like: Name) -> Name:
        index = max(self.next.get(like.hint, 0), like.index)
        while (name := Name(like.hint, index)) in self.used:
            index += 1
        self.used.add(name)
        self.next[like.hint] = index + 1
        return name
