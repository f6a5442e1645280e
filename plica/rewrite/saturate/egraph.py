"""An e-graph: a compact representation of many equal terms.

    EGraph  = classes of equal nodes; a node is a shape over classes
    add     every term belongs to one class; terms of one shape over the same classes share it
    merge   two terms are equal: their classes become one
    close   afterwards: congruent nodes are merged too (union-find, parents re-hashed)

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import i64
>>> from plica.ir.loop.scalar import ScalarVar
>>> a, b = ScalarVar(Name("a"), i64), ScalarVar(Name("b"), i64)
>>> graph = EGraph()
>>> graph.add(a * 2) == graph.add(b * 2)
False
>>> graph.merge(a, b, None)
True
>>> graph.close()
>>> graph.class_of(a * 2) == graph.class_of(b * 2)
True

Note [Own e-graph]: this is not egglog. Plica's rules are Python values: guards, constraints and
computed right sides are Python functions that query types and attributes of real terms, and terms
have attributes, binders and constants of megabytes that would have to be encoded twice. So a class
contains interned terms: a rule is applied to a term by the engine's matcher, and a proof is about
terms, so that it is an ordinary derivation.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from plica.core import Term
from plica.rewrite.saturate.forest import Forest, Why
from plica.rewrite.saturate.shape import CONSTANTS, open_children, shape_of

Key: TypeAlias = tuple[Any, tuple[int, ...]]  # Any: a shape


@attrs.define(eq=False)
class Class:
    """Equal nodes, each with a term that has its shape, and the nodes that stand above them.

    `sample` is the representative term: a constant if there is one, else the oldest.
    """

    sample: Term
    age: int
    nodes: dict[Key, Term]
    parents: dict[Key, tuple[Term, int]] = attrs.field(factory=dict)
    terms: int = 1


class EGraph:
    """Grows while one saturation runs, and belongs to it alone."""

    def __init__(self) -> None:
        self.classes: dict[int, Class] = {}
        self.forest = Forest()
        self._ids: dict[Term, int] = {}
        self._above: list[int] = []  # union-find; a class that was merged points to the other
        self._table: dict[Key, tuple[Term, int]] = {}
        self._changed: list[int] = []

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self._table)

    def __contains__(self, term: Term) -> bool:
        return term in self._ids

    def find(self, number: int) -> int:
        """The class that a class has become."""
        above = self._above
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    def class_of(self, term: Term) -> int:
        """The class of a term that was added."""
        return self.find(self._ids[term])

    def sample(self, number: int) -> Term:
        """The representative term of a class."""
        return self.classes[self.find(number)].sample

    def add(self, term: Term) -> int:
        """The class of a term, created if there is none."""
        stack = [term]
        ids = self._ids
        while stack:
            node = stack[-1]
            if node in ids:
                stack.pop()
                continue
            kids = open_children(node)
            if missing := [kid for kid in kids if kid not in ids]:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._add(node, tuple([self.find(ids[kid]) for kid in kids]))
        return self.class_of(term)

    def _add(self, node: Term, kids: tuple[int, ...]) -> None:
        key = (shape_of(node), kids)
        if (known := self._table.get(key)) is not None:
            like, number = known
            self.forest.join(node, like, None)
            self._ids[node] = number
            self.classes[self.find(number)].terms += 1
            return
        number = len(self._above)
        self._above.append(number)
        self._ids[node] = number
        self._table[key] = (node, number)
        self.classes[number] = Class(node, number, {key: node})
        for kid in dict.fromkeys(kids):
            self.classes[kid].parents[key] = (node, number)

    def merge(self, a: Term, b: Term, why: Why) -> bool:
        """Note that two terms are equal, `a` to `b` by a rule; False where that was known."""
        p, q = self.class_of(a), self.class_of(b)
        if p == q:
            return False
        small, large = (p, q) if self._weight(p) <= self._weight(q) else (q, p)
        if small == p:
            self.forest.join(a, b, why)
        else:
            self.forest.join(b, a, why, forward=False)
        lost, kept = self.classes.pop(small), self.classes[large]
        self._above[small] = large
        if _rank(lost) < _rank(kept):
            kept.sample, kept.age = lost.sample, lost.age
        kept.nodes.update(lost.nodes)
        kept.parents.update(lost.parents)
        kept.terms += lost.terms
        self._changed.append(large)
        return True

    def _weight(self, number: int) -> int:
        found = self.classes[number]
        return found.terms + len(found.parents)

    def close(self) -> None:
        """Merges congruent classes up to a fixed point, and updates the nodes."""
        while self._changed:
            todo = dict.fromkeys(self.find(number) for number in self._changed)
            self._changed = []
            for number in todo:
                self._repair(number)
        for each in self.classes.values():
            each.nodes = {self._canonical(key): term for key, term in each.nodes.items()}

    def _repair(self, number: int) -> None:
        """Hash the nodes above a class again; those that are now one node are merged."""
        number = self.find(number)
        parents = list(self.classes[number].parents.items())
        fresh: dict[Key, tuple[Term, int]] = {}
        for old, (term, owner) in parents:
            key = self._canonical(old)
            if key != old:
                self._table.pop(old, None)
            if (other := self._table.get(key)) is None:
                self._table[key] = (term, owner)
            elif self.find(other[1]) != self.find(owner):
                self.merge(term, other[0], None)
            fresh[key] = (term, self.find(owner))
        here = self.classes[self.find(number)].parents
        for old, _ in parents:
            here.pop(old, None)
        here.update(fresh)

    def _canonical(self, key: Key) -> Key:
        find = self.find
        return key[0], tuple([find(kid) for kid in key[1]])


def _rank(of: Class) -> tuple[bool, int]:
    return not isinstance(of.sample, CONSTANTS), of.age
