"""Node names: the nodes of a model's file from which the expressions of a module come.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.graph.module import module as module_of
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> double = x + x
>>> of = module_of({main: Function((), (), (x,), None, double)}, main)
>>> MADE_BY_NODES[of] = MadeByNodes((("twice", (double,)),), ())
>>> names_within(of)[double]
('twice',)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plica.core import all_of
from plica.ir.graph.expression import Apply, Const, Expr, Literal, Var
from plica.ir.graph.module import MADE_BY_NODES, MadeByNodes, Module


def carry(old: Module, new: Module) -> None:
    """Copies the node names of a module to one that differs only in the names of dims."""
    known = MADE_BY_NODES[old]
    before, after = (all_of(Expr, of.main_function().body) for of in (old, new))
    if len(before) == len(after) and all(map(_is_alike, before, after)):
        there = dict(zip(before, after, strict=True))
        made = [(name, tuple([there[e] for e in of if e in there])) for name, of in known.made]
        MADE_BY_NODES[new] = MadeByNodes(tuple(made), known.selecting)


def _is_alike(one: Expr, other: Expr) -> bool:
    same = type(one) is type(other)
    return same and (not isinstance(one, Apply) or one.op == getattr(other, "op", None))


def names_within(module: Module) -> Mapping[Expr, tuple[str, ...]]:
    """The nodes behind each expression of a module; empty if none were registered.

    Expressions that a node expands to belong to the node; an expression shared by several nodes
    belongs to all of them.
    """
    return names_made(MADE_BY_NODES[module].made) if module in MADE_BY_NODES else {}


def names_made(made: Sequence[tuple[str, tuple[Expr, ...]]]) -> dict[Expr, tuple[str, ...]]:
    """For each expression, the names of the nodes that it comes from."""
    found: dict[Expr, tuple[str, ...]] = {}
    for name, roots in made:
        for term in _fresh(roots, found):
            found[term] = (*found.get(term, ()), name)
    return found


def _fresh(roots: Sequence[Expr], known: Mapping[Expr, object]) -> list[Expr]:
    """The roots, and all below them that belongs to nothing yet."""
    found: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term in found or isinstance(term, Var | Const | Literal):
            continue
        if term not in known or term in roots:
            found[term] = None
        if term not in known:
            stack += [child for child in term._children if isinstance(child, Expr)]
    return list(found)
