"""Mutants: a valid rule with one planted error, and the kind of error.

    kind ::= operator | guard | axis | dtype | order | contract | boundary | broadcast

>>> KINDS[0], len(KINDS)
('operator', 8)
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from plica.core import Term, post_order, rebuild
from plica.rewrite.rule import Rule

KINDS: Final = ("operator", "guard", "axis", "dtype", "order", "contract", "boundary", "broadcast")


@attrs.frozen
class Mutant:
    """A wrong rule, its base rule and the change."""

    kind: str
    base: str
    what: str
    rule: Rule

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.base}, {self.what}"


def spoilt(base: Rule, **changes: Any) -> Rule:  # Any: whatever fields a rule has
    """The rule with some parts changed, under a new name."""
    return attrs.evolve(base, name=f"{base.name}-mutant", **changes)


def replaced(term: Term, old: Term, new: Term) -> Term:
    """The term with all occurrences of a node replaced."""
    done: dict[Term, Term] = {}
    for node in post_order(term):
        kids = tuple([done[kid] for kid in node._children])
        same = all(a is b for a, b in zip(kids, node._children, strict=True))
        done[node] = new if node is old else node if same else rebuild(node, kids)
    return done[term]
