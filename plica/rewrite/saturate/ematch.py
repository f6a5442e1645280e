"""E-matching: the terms of a class that have the structure of a pattern."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from plica.core import Term
from plica.ir.graph.expression import Apply, Literal
from plica.ir.loop.scalar import Scalar
from plica.rewrite.pattern import ANYTHING, Hole, IndexHole, Recursive, Rest, hole_names
from plica.rewrite.saturate import shape
from plica.rewrite.saturate.egraph import EGraph

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
        if (found := self._memo.get((pattern, number))) is None:
            found = tuple(dict.fromkeys(itertools.islice(self._find(pattern, number), CAP)))
            self._memo[pattern, number] = found
        return found

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
