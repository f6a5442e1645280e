"""Standing terms: a term with incremental replacement of parts, at the cost of their ancestors.

>>> from plica.ir.loop.scalar import Add, Lit
>>> from plica.ir.type.dtype import i64
>>> one, two, three = (Lit(each, i64) for each in (1, 2, 3))
>>> standing = StandingTerm(Add(Add(one, two), three))
>>> step = standing.replace(one, three)
>>> standing.root is Add(Add(three, two), three), len(step.above), len(step.gone)
(True, 3, 3)
"""

from __future__ import annotations

from attrs import frozen

from plica.core import Term, parts_first, rebuild


@frozen(eq=False)
class Replacement:
    """The effect of one replacement: the new terms of the part and its ancestors, and the removed
    terms."""

    above: dict[Term, Term]
    """The part itself, then its ancestors, bottom up."""
    gone: set[Term]


class StandingTerm:
    """A term with the parents of each of its parts."""

    def __init__(self, root: Term) -> None:
        self.root = root
        self._above: dict[Term, dict[Term, None]] = {}
        self._enter(root)

    def replace(self, old: Term, new: Term) -> Replacement:
        """Replaces all occurrences of a part."""
        made: dict[Term, Term] = {}
        for node in self._upwards(old) if old in self._above else ():
            if node is old:
                made[node] = new
            elif not type(node).variable:
                kids = tuple([made.get(kid, kid) for kid in node._children])
                made[node] = rebuild(node, kids)
        before, self.root = self.root, made.get(self.root, self.root)
        self._enter(self.root)
        return Replacement(made, self._leave(before))

    def _upwards(self, part: Term) -> list[Term]:
        """A part and all that is above it, parts before wholes."""
        return parts_first(self._above.__getitem__, part)[::-1]

    def _enter(self, root: Term) -> None:
        """Adds the new parts of a term."""
        if root in self._above:
            return
        self._above[root] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            for kid in node._children:
                if kid not in self._above:
                    self._above[kid] = {}
                    stack.append(kid)
                self._above[kid][node] = None

    def _leave(self, term: Term) -> set[Term]:
        """Removes a term without parents, and what only it contained."""
        gone: set[Term] = set()
        stack = [term]
        while stack:
            node = stack.pop()
            if node is self.root or node in gone or self._above[node]:
                continue
            gone.add(node)
            del self._above[node]
            for kid in node._children:
                self._above[kid].pop(node, None)
                stack.append(kid)
        return gone
