"""Walking expressions: the direct parts of an expression, and programs as a whole.

`children` of a term also has types, dims and patterns; passes over programs mostly want the
expressions alone.

>>> from plica.core.name import Name
>>> from plica.ir.graph import Var
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> [type(each).__name__ for each in expressions(x + x)]
['Var', 'Apply']
>>> with_operands(x + x, (x, x)) is x + x
True
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

import attrs

from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph import (
    Apply,
    Call,
    Clause,
    Const,
    Constructor,
    Expr,
    Function,
    If,
    Let,
    Literal,
    Match,
    Project,
    Tuple,
    Var,
)
from plica.ir.infer import infer
from plica.ir.module import Definition, Module


def operands(node: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression; a let's value comes before its body."""
    match node:
        case Apply(_, args, _):
            return args
        case Var() | Const() | Constructor() | Literal():
            return ()
        case Let(_, value, body):
            return (value, body)
        case Call(callee, args, _):
            return (callee, *args)
        case Tuple(items):
            return items
        case Project(value, _):
            return (value,)
        case If():
            return (node.condition, node.then, node.orelse)
        case Function():
            return (node.body,)
        case Match(value, clauses, _):
            return (value, *[clause.body for clause in clauses])
    raise TypeError(f"{type(node).__name__} is no expression of the graph language.")


def with_operands(node: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same expression with other parts.  `with_operands(e, operands(e)) is e`."""
    if new == operands(node):
        return node
    match node:
        case Apply(op, _, attributes):
            return Apply(op, new, attributes)
        case Let(var, _, _):
            return Let(var, *new)
        case Call(_, _, types):
            return Call(new[0], new[1:], types)
        case Tuple():
            return Tuple(new)
        case Project(_, index):
            return Project(new[0], index)
        case If():
            return If(*new)
        case Function():
            return attrs.evolve(node, body=new[0])
        case Match(_, clauses, total):
            bodies = zip(clauses, new[1:], strict=True)
            return Match(new[0], tuple([Clause(c.pattern, body) for c, body in bodies]), total)
    return node


def is_atom(node: Expr) -> bool:
    """Whether an expression is a value as it stands and takes no work: it needs no name."""
    return isinstance(node, Var | Const | Constructor | Literal)


def expressions(*roots: Expr) -> list[Expr]:
    """Every distinct expression inside the roots, parts before wholes."""
    done: set[Expr] = set()
    order: list[Expr] = []
    stack: list[Any] = list(reversed(roots))  # an expression, or a 1-tuple of one to leave
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            order.append(node[0])
        elif node not in done:
            done.add(node)
            parts = operands(node)
            if parts:
                stack.append((node,))
                stack.extend(parts[::-1])
            else:
                order.append(node)
    return order


def map_expressions(f: Callable[[Expr], Expr], root: Expr) -> Expr:
    """Apply `f` to every expression after its parts."""
    memo: dict[Expr, Expr] = {}
    for node in expressions(root):
        parts = operands(node)
        memo[node] = f(with_operands(node, tuple([memo[part] for part in parts])))
    return memo[root]


def map_functions(module: Module, f: Callable[[Var, Function], Function]) -> Module:
    """The module, inferred, with each of its functions replaced; the types of names stay."""
    known = infer(module)
    values: list[Definition] = []
    for name, value in known.items():
        new = f(name, value) if isinstance(value, Function) and isinstance(name, Var) else value
        values.append(new)
    return infer(Module(known.names, tuple(values), known.main))


class Supply:
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
