"""Statements in print: the lines of a function, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from plica.core import Term, free_vars
from plica.ir.graph import expression as ex
from plica.ir.loop.scalar import ScalarVar
from plica.ir.text.show.attribute import attrs_text
from plica.ir.text.show.expression import Body
from plica.ir.text.show.layout import TAIL, StatementSpot
from plica.ir.text.show.type import TypePrinter, parenthesised
from plica.ir.type import DataType, FuncType, TensorType, TupleType, Type

LEVELS: Final = 20
"""Blocks nested deeper are hoisted: Python's parser stops at 100 levels of indentation."""

ELIFS: Final = 8  # an `elif` nests in Python's parser as `else: if` does
_RETURN: Final = "return "


class PendingBlock(NamedTuple):
    """A block that is still to be written."""

    spot: StatementSpot
    value: ex.Expr
    lead: str  # what stands before the value: `return ` or `x = `
    level: int


Item = str | PendingBlock


class StatementWriter:
    """Writes the lines of one function; its nodes have their texts already."""

    def __init__(self, body: Body, owners: dict[ScalarVar, ex.Function]) -> None:
        self.body = body
        self.layout = body.layout
        self.types = body.types
        self.owners = owners  # which function binds a dim
        self.regions: list[tuple[str, PendingBlock]] = []

    def lines(self, value: ex.Expr, level: int) -> list[str]:
        """The lines of a body."""
        first = PendingBlock(self.layout.root, value, _RETURN, level)
        own = self._write(first)
        hoisted: list[str] = []
        pad = "    " * level
        for name, block in self.regions:  # grows while it is gone through
            hoisted.append(f"{pad}def {name}():")
            hoisted += self._write(block._replace(lead=_RETURN, level=level + 1))
        return hoisted + own

    def _write(self, first: PendingBlock) -> list[str]:
        lines: list[str] = []
        stack: list[Item] = [first]
        while stack:
            if isinstance(item := stack.pop(), str):
                lines.append(item)
            else:
                stack.extend(reversed(self._items(item)))
        return lines

    def _items(self, block: PendingBlock) -> list[Item]:
        """The lines of a block; the blocks inside it are not yet written."""
        spot, value, lead, level = block
        pad = "    " * level
        items: list[Item] = []
        if level > LEVELS and (spot.aliases or not self.body.has_text(value)):
            name = self.body.reserve()
            self.regions.append((name, block))
            return [f"{pad}{lead}{name}"]
        while True:
            late = self._late(value, spot)
            for alias in spot.aliases:
                self._alias(alias, level, items, alias in late)
            if not (isinstance(value, ex.Let | ex.LetDim) and self.layout.inside[value][0] is spot):
                break
            if isinstance(value, ex.Let):
                self._let(value, level, items)
            else:
                self.types.words.add("measure")
                told = f'"{self.types.name(value.dim)}", {self.body.text(value.value)[0]}'
                items.append(f"{pad}measure({told})")
            spot, value = self.layout.inside[value][1], value.body
        if value in self.body.done or not isinstance(value, ex.If | ex.Match):
            items.append(f"{pad}{lead}{self.body.text(value)[0]}")
        else:
            self._branches(value, lead, level, items)
        return items

    def _late(self, value: ex.Expr, spot: StatementSpot) -> frozenset[ex.Expr]:
        """Of the aliases at a spot, those that mention the recursive function defined there."""
        if not (isinstance(value, ex.Let) and self.layout.inside[value][0] is spot):
            return frozenset()
        if not spot.aliases or not self.layout.is_recursive(value):
            return frozenset()
        return frozenset([aliase for aliase in spot.aliases if value.var in free_vars(aliase)])

    def _alias(self, node: ex.Expr, level: int, items: list[Item], late: bool) -> None:
        pad = "    " * level
        name = self.body.alias[node]
        text = self.body.alias_text.get(node)
        if isinstance(node, ex.Let | ex.LetDim):
            items.append(f"{pad}def {name}():")
            items.append(PendingBlock(self.layout.inside[node][0], node, _RETURN, level + 1))
        elif late:
            # A function that is not defined yet: a region is read where it is used, after it.
            items.append(f"{pad}def {name}():")
            inner = self.body.reserve() if text is None else text
            if text is None:
                self._define(node, inner, level + 1, items)
            items.append(f"{pad}    return {inner}")
        elif text is not None:
            items.append(f"{pad}{name} = {text}")
        else:
            self._define(node, name, level, items)

    def _define(self, node: ex.Expr, name: str, level: int, items: list[Item]) -> None:
        """Statements that bind `name` to a function, an `if` or a `match`."""
        if isinstance(node, ex.Function):
            self._function(node, name, level, items)
        else:
            assert isinstance(node, ex.If | ex.Match)
            self._branches(node, f"{name} = ", level, items)

    def _let(self, node: ex.Let, level: int, items: list[Item]) -> None:
        pad = "    " * level
        name, value = self.body.name(node.var), node.value
        needed = self._annotation(node)
        if value in self.body.done or not isinstance(value, ex.Function | ex.If | ex.Match):
            items.append(f"{pad}{name}{needed} = {self.body.text(value)[0]}")
        elif isinstance(value, ex.Function):
            if needed:
                items.append(f"{pad}{name}{needed}")
            self._function(value, name, level, items)
        else:
            if needed:
                items.append(f"{pad}{name}{needed}")
            self._branches(value, f"{name} = ", level, items)

    def _annotation(self, node: ex.Let) -> str:
        """The type of a let, where inference would not give just this one."""
        given = node.var.type
        if given is None or self.body.type_of(node.value) is given:
            return ""
        return f": {self.types.show(given)}"

    def _function(self, node: ex.Function, name: str, level: int, items: list[Item]) -> None:
        pad = "    " * level
        (start,) = self.layout.inside[node]
        if not node.params and node.ret is None:  # `def _3():` would be a region
            inner = self.body.reserve()
            items.append(f"{pad}def {inner}():")
            items.append(PendingBlock(start, node.body, _RETURN, level + 1))
            items.append(f"{pad}{name} = lambda: {inner}")
            return
        items += [f"{pad}{line}" for line in heading(node, name, self.types, self.owners)]
        items.append(PendingBlock(start, node.body, _RETURN, level + 1))

    def _branches(self, node: ex.If | ex.Match, lead: str, level: int, items: list[Item]) -> None:
        pad = "    " * level
        if isinstance(node, ex.Match):
            self._clauses(node, lead, level, items)
            return
        word = "if"
        for elifs in range(ELIFS + 1):
            then, orelse = self.layout.inside[node]
            items.append(f"{pad}{word} {self.body.text(node.condition)[0]}:")
            items.append(PendingBlock(then, node.then, lead, level + 1))
            rest = node.orelse
            plain = (
                isinstance(rest, ex.If)
                and self.layout.role.get(rest) == TAIL
                and not orelse.aliases
            )
            if not plain or elifs == ELIFS or level >= LEVELS:
                items += [f"{pad}else:", PendingBlock(orelse, rest, lead, level + 1)]
                return
            assert isinstance(rest, ex.If)
            node, word = rest, "elif"

    def _clauses(self, node: ex.Match, lead: str, level: int, items: list[Item]) -> None:
        pad = "    " * level
        value = self.body.text(node.value)[0]
        if not node.total:
            self.types.words.add("partial")
            value = f"partial({value})"
        if not node.clauses:
            self.types.words.add("absurd")
            items.append(f"{pad}{lead}absurd({value})")
            return
        items.append(f"{pad}match {value}:")
        for clause, start in zip(node.clauses, self.layout.inside[node], strict=True):
            items.append(f"{pad}    case {self._pattern(clause.pattern)}:")
            items.append(PendingBlock(start, clause.body, lead, level + 2))

    def _pattern(self, pattern: ex.Pattern) -> str:
        match pattern:
            case ex.PAny():
                return "_"
            case ex.PVar(var):
                return self.body.name(var)
            case ex.PConstructor(constructor, items):
                inside = ", ".join(map(self._pattern, items))
                return f"{self.types.constructor(constructor)}({inside})"
            case ex.PTuple(items):
                return parenthesised([self._pattern(item) for item in items])


def heading(
    node: ex.Function,
    name: str,
    types: TypePrinter,
    owners: dict[ScalarVar, ex.Function],
    decorator: str = "",
) -> list[str]:
    """The lines of a function up to its `def`, with a decorator if it has options."""
    options = []
    if node.types:
        options.append(f'forall="{" ".join([types.name(type_var) for type_var in node.types])}"')
    implied = [d for d in dims_of(p.type for p in node.params) if owners.get(d, node) is node]
    if implied != list(node.dims):
        options.append(f'dims="{" ".join([types.name(dim) for dim in node.dims])}"')
    if node.attrs:
        options.append(f"attrs={attrs_text(node.attrs, types)}")
    if options:
        decorator = f"@plica.function({', '.join(options)})"
    params = ", ".join([_typed(types.names.get(p, str(p.name)), p, types) for p in node.params])
    ret = "" if node.ret is None else f" -> {types.show(node.ret)}"
    return [*([decorator] if decorator else []), f"def {name}({params}){ret}:"]


def dims_of(types: Iterable[Type | None]) -> list[ScalarVar]:
    """The symbolic dims in types, in the order in which their text mentions them."""
    found: dict[ScalarVar, None] = {}
    for type_ in types:
        if type_ is not None:
            _dims(type_, (), found)
    return list(found)


def _dims(of: Type, bound: tuple[Term, ...], found: dict[ScalarVar, None]) -> None:
    match of:
        case TensorType():
            for dim in of.shape:
                stack: list[Term] = [dim]
                while stack:
                    if isinstance(node := stack.pop(), ScalarVar):
                        if node not in bound:
                            found[node] = None
                    else:
                        stack.extend(reversed(node._children))
        case TupleType():
            for item in of.items:
                _dims(item, bound, found)
        case DataType():
            for item in of.args:
                _dims(item, bound, found)
        case FuncType():
            for item in (*of.params, of.ret):
                _dims(item, (*bound, *of.dims), found)
        case _:
            pass


def _typed(name: str, variable: ex.Var, types: TypePrinter) -> str:
    return name if variable.type is None else f"{name}: {types.show(variable.type)}"
