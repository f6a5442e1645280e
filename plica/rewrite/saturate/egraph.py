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

import itertools
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import attrs

from plica.core import Term
from plica.ir.graph.expression import Apply, Literal
from plica.ir.loop.scalar import Scalar
from plica.rewrite.pattern import ANYTHING, Hole, IndexHole, Recursive, Rest, hole_names
from plica.rewrite.saturate import shape
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
        class_ = self.classes[number]
        return class_.terms + len(class_.parents)

    def close(self) -> None:
        """Merges congruent classes up to a fixed point, and updates the nodes."""
        while self._changed:
            todo = dict.fromkeys(self.find(number) for number in self._changed)
            self._changed = []
            for number in todo:
                self._repair(number)
        for class_ in self.classes.values():
            class_.nodes = {self._canonical(key): term for key, term in class_.nodes.items()}

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


# --- e-matching --------------------------------------------------------------------------------


CAP: Final = 200  # how many terms of one class are tried for one pattern
MAX_TERMS_PER_HOLE: Final = 4  # how many terms of a class are tried for a hole with demands


class Candidates:
    """The terms to try, found once for each pattern and class while the e-graph rests."""

    def __init__(self, graph: EGraph) -> None:
        self.graph = graph
        self._memo: dict[tuple[Term, int], tuple[Term, ...]] = {}
        self._closed: dict[Term, bool] = {}

    def of(self, pattern: Term, number: int) -> tuple[Term, ...]:
        """The terms of a class that have the structure of the pattern."""
        if (terms := self._memo.get((pattern, number))) is None:
            terms = tuple(dict.fromkeys(itertools.islice(self._find(pattern, number), CAP)))
            self._memo[pattern, number] = terms
        return terms

    def _find(self, pattern: Term, number: int) -> Iterable[Term]:
        graph = self.graph
        here = graph.classes[number]
        if isinstance(pattern, Hole | IndexHole):
            if pattern.constraint.constant:
                return (term for term in here.nodes.values() if isinstance(term, shape.CONSTANTS))
            if pattern.constraint is ANYTHING:
                return (here.sample,)
            return (here.sample, *itertools.islice(self._plain(number), MAX_TERMS_PER_HOLE))
        if isinstance(pattern, Recursive):
            return (here.sample, *itertools.islice(self._plain(number), MAX_TERMS_PER_HOLE))
        if isinstance(pattern, Literal):
            return (term for term in here.nodes.values() if isinstance(term, shape.CONSTANTS))
        if isinstance(pattern, Scalar) and self._is_closed(pattern):
            known = pattern in graph and graph.class_of(pattern) == number
            return (pattern,) if known else ()
        return self._structured(pattern, number)

    def _is_closed(self, pattern: Term) -> bool:
        """Whether a pattern has no holes: then equal terms are one object."""
        if (found := self._closed.get(pattern)) is None:
            found = self._closed[pattern] = not hole_names(pattern)
        return found

    def _plain(self, number: int) -> Iterable[Term]:
        """Every node of a class over the terms that stand for its children."""
        graph = self.graph
        for key, term in graph.classes[number].nodes.items():
            yield shape.with_children(term, [graph.sample(kid) for kid in key[1]])

    def _structured(self, pattern: Term, number: int) -> Iterable[Term]:
        cls = pattern.__class__
        op = pattern.op if isinstance(pattern, Apply) else None
        for key, term in self.graph.classes[number].nodes.items():
            if term.__class__ is cls and (op is None or term.op == op):  # type: ignore[attr-defined]  # the class was just seen
                yield from self._filled(pattern, key[1], term)

    def _filled(self, pattern: Term, kids: tuple[int, ...], term: Term) -> Iterable[Term]:
        """A node over terms of its children that fit the pattern's."""
        if shape.is_leaf(term):
            return (term,)
        wanted = _aligned(pattern, term)
        options: list[tuple[Term, ...]] = []
        for want, kid in zip(wanted, kids, strict=True):
            options.append((self.graph.sample(kid),) if want is None else self.of(want, kid))
        return (shape.with_children(term, chosen) for chosen in itertools.product(*options))


def _aligned(pattern: Term, term: Term) -> list[Term | None]:
    """For each open child of a node the part of the pattern that it must match, or None."""
    if isinstance(pattern, Apply) and isinstance(term, Apply):
        plain: list[Term | None] = [None] * len(shape.open_children(term))
        fixed = [arg for arg in pattern.args if not isinstance(arg, Rest)]
        count = len(term.args)
        if len(fixed) > count or (len(fixed) == len(pattern.args) and len(fixed) != count):
            return plain  # the matcher will say no
        plain[: len(fixed)] = fixed  # the arguments are the first children
        return plain
    if len(pattern._children) != len(term._children):
        return [None] * len(shape.open_children(term))
    return [pattern._children[place] for place in shape.open_places(term)]
