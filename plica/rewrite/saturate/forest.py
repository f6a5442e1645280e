"""The proof forest: why terms are equal, so that every equality can be spelled out as steps.

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import i64
>>> from plica.ir.loop.scalar import ScalarVar
>>> from plica.rewrite import index_holes, rule
>>> (x,) = index_holes("x")
>>> zero = rule("add-zero", x + 0, x)
>>> a = ScalarVar(Name("a"), i64)
>>> forest = Forest()
>>> forest.join(a + 0, a, zero)
>>> [(edge.rule.name, edge.forward) for edge in forest.explain(a, a + 0, 9)]
[('add-zero', False)]
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from plica.core import CompilerBug, Term
from plica.rewrite.rule import Rule
from plica.rewrite.saturate.shape import open_places

Why: TypeAlias = Rule | None  # None: congruence


@attrs.frozen(eq=False)
class Edge:
    """A rule used at a path, forward or backward."""

    rule: Rule
    forward: bool
    before: Term
    after: Term
    path: tuple[int, ...]


Item: TypeAlias = Edge | tuple[Term, Term, tuple[int, ...]]  # a tuple: congruent terms, at a path


class Forest:
    """Trees of equal terms; grows while one saturation runs."""

    def __init__(self) -> None:
        self._up: dict[Term, tuple[Term, Why, bool]] = {}

    def join(self, a: Term, b: Term, why: Why, forward: bool = True) -> None:
        """Records `a = b`: by a rule that rewrites `a` to `b`, or `b` to `a`, or by congruence.

        They are in different trees; that of `a` is rerooted, and should be the smaller one.
        """
        self._root_at(a)
        self._up[a] = (b, why, forward)

    def _root_at(self, term: Term) -> None:
        """Turn the edges above `term`, so that it is the root of its tree."""
        node, above = term, self._up.pop(term, None)
        while above is not None:
            parent, why, forward = above
            above = self._up.pop(parent, None)
            self._up[parent] = (node, why, not forward)
            node = parent

    def explain(self, a: Term, b: Term, limit: int) -> list[Edge] | None:
        """The rule applications from `a` to `b`, or None if there are more than `limit`."""
        edges: list[Edge] = []
        work: list[Item] = []
        visits = 0
        work.extend(reversed(self._way(a, b, ())))
        while work:
            item = work.pop()
            visits += 1
            if visits > 4 * limit:
                return None
            if isinstance(item, Edge):
                edges.append(item)
                continue
            x, y, path = item
            inner: list[Item] = []
            for place in open_places(x):
                before, after = x._children[place], y._children[place]
                if before is not after:
                    inner.extend(self._way(before, after, (*path, place)))
            work.extend(reversed(inner))
        return edges if len(edges) <= limit else None

    def _way(self, a: Term, b: Term, path: tuple[int, ...]) -> list[Item]:
        """The edges from `a` to `b` in their tree."""
        seen: dict[Term, int] = {a: 0}
        rising: list[tuple[Term, Term, Why, bool]] = []
        node = a
        while node in self._up:
            parent, why, forward = self._up[node]
            rising.append((node, parent, why, forward))
            seen[parent] = len(rising)
            node = parent
        falling: list[tuple[Term, Term, Why, bool]] = []
        node = b
        while node not in seen:
            if node not in self._up:
                raise CompilerBug(f"Nothing makes {a!r} equal to {b!r}.")
            parent, why, forward = self._up[node]
            falling.append((parent, node, why, not forward))
            node = parent
        edges = [*rising[: seen[node]], *reversed(falling)]
        return [
            (x, y, path) if why is None else Edge(why, forward, x, y, path)
            for x, y, why, forward in edges
        ]
