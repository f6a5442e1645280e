"""Walking expressions: the direct parts of an expression, and programs as a whole.

`children` of a term also has types, dims and patterns; passes over programs mostly want the
expressions alone.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> [type(each).__name__ for each in expressions(x + x)]
['Var', 'Apply']
>>> with_operands(x + x, (x, x)) is x + x
True

Uses: who uses each expression, and how often.

A use is a place that holds the expression: an argument, a branch, the value of a let. A shared
expression counts per place, not per evaluation.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Tuple, Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> both = Tuple((x + 1, x + 1))
>>> use_counts(both)[x + 1], use_counts(both)[x]
(2, 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

from plica.core import Name, Term, post_order
from plica.core.collector import paused
from plica.ir.graph import Call, Defined, Definition, Expr, Module, Var, expression as ex
from plica.ir.graph.expression import operands, with_operands
from plica.ir.type import infer

__all__ = [
    "NameSupply", "escaping", "expressions", "is_atom", "map_expressions", "map_functions",
    "names_in", "operands", "reachable", "recursive", "references", "use_counts", "users",
    "with_operands",
]  # fmt: skip


def use_counts(*roots: Expr) -> Counter[Expr]:
    """The number of places of each expression; roots do not count."""
    counts: Counter[Expr] = Counter()
    for node in expressions(*roots):
        counts.update(operands(node))
    return counts


def users(*roots: Expr) -> dict[Expr, tuple[Expr, ...]]:
    """The expressions each expression is a direct part of, each once, in the order of a walk."""
    found: dict[Expr, dict[Expr, None]] = {}
    for node in expressions(*roots):
        found.setdefault(node, {})
        for part in operands(node):
            found[part][node] = None
    return {node: tuple(each) for node, each in found.items()}


def escaping(*roots: Expr) -> set[Var]:
    """The variables that stand somewhere else than in the place of a called function."""
    found: set[Var] = set()
    for node in expressions(*roots):
        parts = operands(node)
        if isinstance(node, Call):
            parts = parts[1:]
        found.update(part for part in parts if isinstance(part, Var))
    return found | {root for root in roots if isinstance(root, Var)}


def references(value: Definition, table: Mapping[Term, Definition]) -> dict[Defined, None]:
    """The definitions that a definition refers to, in walk order."""
    return {node: None for node in post_order(value) if node in table}  # type: ignore[misc]  # keys of the table are names


def reachable(module: Module, roots: Iterable[Defined]) -> dict[Defined, None]:
    """The definitions that some of them need, directly or not."""
    table = module.definitions()
    found: dict[Defined, None] = dict.fromkeys(root for root in roots if root in table)
    queue = list(found)
    for name in queue:
        for reference in references(table[name], table):
            if reference not in found:
                found[reference] = None
                queue.append(reference)
    return found


def recursive(module: Module) -> dict[Var, frozenset[Var]]:
    """For each recursive function, all functions mutually recursive with it."""
    from plica.ir.type.infer import components

    table = module.definitions()
    names = [name for name, _ in module.functions()]
    found: dict[Var, frozenset[Var]] = {}
    for group in components(names, table):
        if len(group) > 1 or group[0] in references(table[group[0]], table):
            found.update(dict.fromkeys(group, frozenset(group)))
    return found


ATOMS: Final = (ex.Var, ex.Const, ex.Constructor, ex.Literal)


def is_atom(node: ex.Expr) -> bool:
    """Whether an expression is an atomic value that takes no work, and needs no name."""
    return isinstance(node, ATOMS)


def expressions(*roots: ex.Expr) -> list[ex.Expr]:
    """Every distinct expression inside the roots, parts before wholes."""
    done: set[ex.Expr] = set()
    order: list[ex.Expr] = []
    stack: list[Any] = list(reversed(roots))  # an expression to visit, or one to leave and None
    pop, leave, see = stack.pop, order.append, done.add
    with paused():
        while stack:
            if (node := pop()) is None:
                leave(pop())
            elif node not in done:
                see(node)
                parts = node.args if node.__class__ is ex.Apply else operands(node)
                if parts:
                    stack.append(node)
                    stack.append(None)
                    stack.extend(parts[::-1])
                else:
                    leave(node)
    return order


def map_expressions(f: Callable[[ex.Expr], ex.Expr], root: ex.Expr) -> ex.Expr:
    """Apply `f` to every expression after its parts."""
    memo: dict[ex.Expr, ex.Expr] = {}
    with paused():
        for node in expressions(root):
            memo[node] = f(with_operands(node, tuple([memo[part] for part in operands(node)])))
    return memo[root]


def map_functions(module: Module, f: Callable[[ex.Var, ex.Function], ex.Function]) -> Module:
    """The inferred module with each of its functions replaced; the types of names are unchanged."""
    known = infer(module)
    values: list[Definition] = []
    with paused():
        for name, value in known.items():
            new = (
                f(name, value)
                if isinstance(value, ex.Function) and isinstance(name, ex.Var)
                else value
            )
            values.append(new)
        return infer(Module(known.names, tuple(values), known.main))


class NameSupply:
    """Names that nothing in some terms has, nor is among `outer`."""

    def __init__(self, *terms: Term, outer: Container[Name] = ()) -> None:
        self.used: set[Name] = set()
        self.outer = outer
        for term in terms:
            self.used.update(names_in(term))
        self.last: dict[str, int] = {}

    def name(self, hint: str) -> Name:
        """A new name with this hint."""
        index = self.last.get(hint, 0)
        name = Name(hint, index)
        while name in self.used or name in self.outer:
            index += 1
            name = Name(hint, index)
        self.used.add(name)
        self.last[hint] = index + 1
        return name


def names_in(term: Term) -> Iterable[Name]:
    """The names of all variables of a term, bound or free."""
    return (node.name for node in post_order(term) if type(node).variable)  # type: ignore[attr-defined]  # a variable has a name
