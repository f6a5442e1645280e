"""Mistakes in a rule as a whole: a guard that is lost, a contract too strong, a larger term."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs

from plica.core import Term, map_bottom_up, post_order
from plica.ir.contract import APPROX, Contract, reassociates
from plica.ir.graph import Apply
from plica.rewrite.closed import is_closed, is_varying
from plica.rewrite.match import compiled
from plica.rewrite.mutate.mutant import spoilt
from plica.rewrite.packs.canonical import is_varying as is_no_constant
from plica.rewrite.packs.shape import is_explicit, is_order
from plica.rewrite.packs.word import Evaluated, FirstFilled, LikeLeft
from plica.rewrite.pattern import Constraint, Hole
from plica.rewrite.rule import Rule

NamedRule: TypeAlias = tuple[str, Rule]


def contract_edits(base: Rule) -> Iterator[NamedRule]:
    """The next stronger contract."""
    if level := base.contract.level:
        stronger = reassociates if level == APPROX else Contract(level - 1)
        yield f"{stronger} for {base.contract}", spoilt(base, contract=stronger)


def guard_edits(base: Rule) -> Iterator[NamedRule]:
    """The guard, or one constraint of one hole, removed."""
    if base.when is not None:
        word = getattr(base.when, "__name__", "")
        yield f"no guard {word}".rstrip(), spoilt(base, when=None)
    holes = [node for node in post_order(base.left) if isinstance(node, Hole)]
    for hole in dict.fromkeys(holes):
        for demand in ("dtypes", "ranks", "shape", "when", "constant"):
            if not getattr(hole.constraint, demand):
                continue
            if _says_nothing(base, hole, demand):
                continue
            lost: dict[str, Any] = {demand: False if demand == "constant" else None}
            constraint = attrs.evolve(hole.constraint, **lost)
            yield f"any {demand} of {hole.name}", _with_hole(base, hole, constraint)


# Note [Demands that say nothing]
# Where the right side is made of terms, what fills a hole goes into it as it is.  An equation that
# holds of all constants holds of variables, and one that holds of an attribute written out holds of
# it however it is written, since operators read both alike.  Whether a term is closed only says
# what is worth, or possible, to compute beforehand.  To lose such a demand is no mistake.
FORMS: Final = (is_order, is_explicit, is_no_constant)
WORTH: Final = (is_closed, is_varying)


def _says_nothing(base: Rule, hole: Hole, demand: str) -> bool:
    if demand == "when" and hole.constraint.when in WORTH:
        return True
    of_form = demand == "when" and hole.constraint.when in FORMS
    is_term = base.build is not None or isinstance(base.right, LikeLeft | Evaluated | FirstFilled)
    return is_term and (demand == "constant" or of_form)


def _with_hole(base: Rule, hole: Hole, constraint: Constraint) -> Rule:
    """The rule with other constraints on one hole."""
    other = Hole(hole.name, constraint)
    left = map_bottom_up(lambda node: other if node is hole else node, base.left)
    left = _in_attributes(left, hole, other)
    return spoilt(base, left=left, matchers=compiled(left))


def _in_attributes(left: Term, hole: Hole, other: Hole) -> Term:
    """The same for holes among attributes."""

    def change(node: Term) -> Term:
        if not isinstance(node, Apply) or all(value is not hole for _, value in node.attrs):
            return node
        values = [(key, other if value is hole else value) for key, value in node.attrs]
        return Apply(node.op, node.args, tuple(values))

    return map_bottom_up(change, left)
