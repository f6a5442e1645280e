"""Scopes: a term may be replaced by an equal one only where its variables mean something.

Sets of variables are bits of an integer: a chain of ten thousand lets has many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from plica.core import Term, parts_first, post_order
from plica.core.binding import bound_by
from plica.rewrite.saturate.egraph import EGraph
from plica.rewrite.saturate.shape import is_leaf, open_children

Choice: TypeAlias = dict[int, tuple[Term, tuple[int, ...]]]
"""For each class the node that was chosen, and the classes of its children."""


class Scopes:
    """The variables that may be used in each class, for one source."""

    def __init__(self, graph: EGraph, source: Term) -> None:
        self._bits: dict[Term, int] = {}
        self.allowed: dict[int, int] = {}
        self.needed = any(type(node).binds for node in post_order(source) if not is_leaf(node))
        if not self.needed:
            return
        free: dict[Term, int] = {}
        for node in _inside(source):
            free[node] = mine = self.free(node, [free[kid] for kid in open_children(node)])
            number = graph.class_of(node)
            self.allowed[number] = self.allowed.get(number, mine) & mine

    def free(self, node: Term, kids: Sequence[int]) -> int:
        """The free variables of a node, from those of its open children."""
        if is_leaf(node):
            return 1 << self._bits.setdefault(node, len(self._bits)) if type(node).variable else 0
        found = 0
        for child in kids:
            found |= child
        for _, _, variables in bound_by(node) if type(node).binds else ():
            for variable in variables:
                found &= ~(1 << self._bits.setdefault(variable, len(self._bits)))
        return found

    def fits(self, number: int, free: int) -> bool:
        """Whether a term with these variables may stand where the terms of a class stand."""
        return not self.needed or free & ~self.allowed.get(number, free) == 0

    def follow(self, graph: EGraph) -> None:
        """Classes were merged: the allowed variables are those allowed in all of them."""
        before, self.allowed = self.allowed, {}
        for number, mine in before.items():
            now = graph.find(number)
            self.allowed[now] = self.allowed.get(now, mine) & mine

    def keeps(self, choice: Choice, chosen: Mapping[int, Term]) -> bool:
        """Whether no chosen term has a variable that its class may not have."""
        if not self.needed:
            return True
        free: dict[int, int] = {}
        for number in chosen:  # children come first
            term, kids = choice[number]
            free[number] = self.free(term, [free[kid] for kid in kids])
            if not self.fits(number, free[number]):
                return False
        return True


def _inside(root: Term) -> list[Term]:
    """The nodes that are reached through open children, children first."""
    return parts_first(open_children, root)
