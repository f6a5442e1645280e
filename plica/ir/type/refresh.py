"""Refresh: makes untyped binders unique, and copies terms with fresh binders.

>>> from plica.ir.graph.expression import Tuple
>>> x = Var(Name("x"), None)
>>> term = Tuple((Function((), (), (x,), None, x), Function((), (), (x,), None, Tuple((x, x)))))
>>> made = Refresher().separated(term)
>>> made.items[0].params[0] is made.items[1].params[0]
False

Typed variables are left alone: their type is the same wherever they are bound.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import attrs

from plica.core import Name, Term, all_of, post_order, rebuild, substitute, variables_of
from plica.ir.graph.expression import Clause, Expr, Function, Let, Match, Var
from plica.ir.type.term import TensorType, Unknown

MAX_EXTRA_NODES: Final = 4_000
"""The number of nodes that may be copied or revisited per use, beyond the size of the term. Past
that, the uses of a node share one type: a program that doubles an empty list sixty times stays
linear, and is refused only if two uses disagree."""


def is_untyped(var: Var) -> bool:
    """Whether inference has to find the type of a variable, or a part of it."""
    if var.type is None:
        return True
    if isinstance(var.type, TensorType):  # the usual case, and it has no types inside
        return False
    return bool(all_of(Unknown, var.type))


def untyped_binders(node: Term) -> list[tuple[Term, Var]]:
    """The untyped variables a node binds, each with the part of the node that binds it.

    It is the match that binds, not the clause: two matches may share one clause.
    """
    if isinstance(node, Let):
        return [(node, node.var)] if is_untyped(node.var) else []
    if isinstance(node, Function):
        return [(node, param) for param in node.params if is_untyped(param)]
    if isinstance(node, Match):
        return [
            (clause, each)
            for clause in node.clauses
            for each in variables_of(clause.pattern)
            if isinstance(each, Var) and is_untyped(each)
        ]
    return []


class Refresher:
    """New variables for old, and the way back: what each new variable and node was made from."""

    def __init__(self) -> None:
        self.count = 0
        self.spare = MAX_EXTRA_NODES
        self.origin: dict[Term, Term] = {}
        self.binding: set[Term] = set()  # the nodes with an untyped binder somewhere inside
        self.typed: list[Var] = []  # the variables that have a type already
        self.nested = False  # whether a polymorphic function stands inside another one

    def original(self, node: Term) -> Term:
        """The node before it was copied."""
        while node in self.origin:
            node = self.origin[node]
        return node

    def separated(self, root: Expr, outer: Container[Term] = ()) -> Expr:
        """The same term, each untyped variable bound once, and none of `outer` bound at all."""
        nodes = post_order(root)
        self.spare += len(nodes)
        binder: dict[Term, tuple[Term, Term]] = {}
        unclear: set[Term] = set()
        for node in nodes:
            if node.__class__ in _BINDING:
                for part, var in untyped_binders(node):
                    own = (node, part)
                    if binder.setdefault(var, own) != own or var in outer:
                        unclear.add(var)
                if isinstance(node, Function) and node is not root and (node.dims or node.types):
                    self.nested = True
            elif isinstance(node, Var) and node.type is not None:
                self.typed.append(node)
        if unclear:
            root = self._split(nodes, unclear, root)
            nodes = post_order(root)
        if binder:
            self._note(nodes)
        return root

    def copied(self, root: Expr) -> Expr | None:
        """The same term with new variables for its untyped binders; None if that is too much."""
        nodes = post_order(root) if root in self.binding else [root]
        self.spare -= len(nodes)
        if self.spare < 0:
            return None
        if root not in self.binding:
            return root
        memo: dict[Term, Term] = {}
        for node in nodes:
            for _, var in untyped_binders(node) if node.__class__ in _BINDING else ():
                memo[var] = self._fresh(var)
        made = []
        for node in nodes:
            if node not in memo:
                new = rebuild(node, tuple([memo[kid] for kid in node._children]))
                memo[node] = new
                if new is not node:
                    self.origin[new] = node
                    made.append(new)
        self._note(made)
        copy = memo[root]
        assert isinstance(copy, Expr)
        return copy

    def _fresh(self, var: Var) -> Var:
        self.count += 1
        new: Var = attrs.evolve(var, name=Name(f"?{var.name}", self.count))
        self.origin[new] = var
        return new

    def _note(self, nodes: list[Term]) -> None:
        binding = self.binding
        for node in nodes:
            if (node.__class__ in _BINDING and untyped_binders(node)) or not binding.isdisjoint(
                node._children
            ):
                binding.add(node)

    def _split(self, nodes: list[Term], unclear: set[Term], root: Expr) -> Expr:
        """Gives every binder of an ambiguous variable a variable of its own, from the
        inside out."""
        memo: dict[Term, Term] = {}
        for node in nodes:
            new = rebuild(node, tuple([memo[kid] for kid in node._children]))
            mapping: dict[Term, dict[Term, Term]] = {}
            for part, var in untyped_binders(node) if node.__class__ in _BINDING else ():
                if var in unclear:
                    mapping.setdefault(part, {})[var] = self._fresh(var)
            if isinstance(new, Match):
                assert isinstance(node, Match)
                clauses = tuple(
                    _renamed(clause, mapping.get(was, {}))
                    for was, clause in zip(node.clauses, new.clauses, strict=True)
                )
                new = attrs.evolve(new, clauses=clauses)
            elif mapping:
                new = _renamed(new, mapping[node])
            memo[node] = new
            if new is not node:
                self.origin[new] = node
        result = memo[root]
        assert isinstance(result, Expr)
        return result


def _renamed(binder: Clause | Term, mapping: dict[Term, Term]) -> Clause:
    """A binder with its own variables replaced where it binds them and where they are used."""
    if not mapping:
        return binder  # type: ignore[return-value]  # a clause stays one, any node stays itself
    inside = tuple([substitute(kid, mapping) for kid in binder._children])
    return rebuild(binder, inside)  # type: ignore[return-value]  # as above


_BINDING: Final[frozenset[type]] = frozenset({Let, Function, Match})
