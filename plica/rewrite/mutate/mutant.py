"""Mutants: a valid rule with one planted error, and the kind of error.

    kind ::= operator | guard | axis | dtype | order | contract | boundary | broadcast

>>> KINDS[0], len(KINDS)
('operator', 8)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from plica.core import Term, post_order, rebuild
from plica.ir.graph.expression import Expr
from plica.rewrite.instantiate import plan
from plica.rewrite.make import tabled
from plica.rewrite.match import PatternMatch
from plica.rewrite.rule import Rule

KINDS: Final = ("operator", "guard", "axis", "dtype", "order", "contract", "boundary", "broadcast")

Edit: TypeAlias = Callable[[Expr], Expr | None]


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


def edited(base: Rule, edit: Edit) -> Rule:
    """The rule with its right side edited wherever possible."""

    def right(match: PatternMatch) -> Term | None:
        made = right_of(base, match)
        if not isinstance(made, Expr):
            return made
        changed = edit(made)
        return made if changed is None else changed

    return spoilt(base, right=right, build=None)


def within(base: Rule, left: Callable[[Expr], Expr], right: Callable[..., Term | None]) -> Rule:
    """The rule inside of a larger term: `left` of its left side, `right` of its right side.

    `right` receives the built right side and the match.
    """
    pattern = base.left
    assert isinstance(pattern, Expr)

    def whole(match: PatternMatch) -> Term | None:
        made = right_of(base, match)
        return None if made is None else right(made, match)

    wide = left(pattern)
    name, known = f"{base.name}-mutant", base.instances
    return tabled(name, wide, whole, when=base.when, float=base.contract, instances=known)


def right_of(base: Rule, match: PatternMatch) -> Term | None:
    """The instantiated right side of a rule."""
    build = base.build or (plan(base.right) if isinstance(base.right, Term) else None)
    made: Term | None = base.right(match) if build is None else build(match.filling)  # type: ignore[operator]  # no plan: a function
    return made
