"""Distinct binders: in print every variable has one binder, and every node one scope.

>>> from plica.ir.graph.expression import Tuple, Var, const
>>> x = Var(Name("x"), None)
>>> both = Tuple((Let(x, const(1, "i32"), x), Let(x, const(2, "i32"), x)))
>>> [str(each.var.name) for each in distinct(both).items]
['x', 'x_1']

Laws: `alpha_equal(distinct(t), t)`; `distinct(distinct(t)) is distinct(t)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from plica.core.binding import name_of, rename, substitute, variables_of
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term, rebuild
from plica.ir.graph.expression import Expr, Function, Let, Match
from plica.ir.text.show.layout import Parts, parts

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
            again.update([each for each in group if each in seen])
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
        for each in variables:
            if each in self.spent:
                mapping[each] = rename(each, self._fresh(name_of(each)))
            elif each in self.again:
                self.spent.add(each)
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
