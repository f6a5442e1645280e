"""Mistakes in a rule inside of a larger term: its right side edited, operands in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from plica.core import Term
from plica.ir.contract import signless_zero
from plica.ir.graph import Apply, Expr, find
from plica.rewrite.instantiate import plan
from plica.rewrite.make import tabled
from plica.rewrite.match import PatternMatch
from plica.rewrite.mutate.mutant import spoilt
from plica.rewrite.mutate.rule_edit import NamedRule
from plica.rewrite.pattern import alternatives, holes
from plica.rewrite.rule import Rule
from tests.rewrite.mutants.edit import Edit, first_axes


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


def order_edits(base: Rule) -> Iterator[NamedRule]:
    """Sums and products over a rule's operands in another order, with its own contract."""
    if signless_zero < base.contract or len(alternatives(base.left)) > 1:
        return
    q, r = holes("mutant_q mutant_r")
    for word, name in (("sum", "sum"), ("product", "prod")):
        for turn in ("flip", "transpose"):
            yield f"{word} of the {turn}", _folded(base, _op(name), _op(turn))
    for word, name in (("sum", "add"), ("product", "multiply")):
        yield f"{word} of three", _regrouped(base, _op(name), q, r)


def _folded(base: Rule, fold: Any, turn: Any) -> Rule:
    """Everything folded, on the right side in another order."""
    return within(base, lambda of: fold(of, None, False), lambda of, _: fold(turn(of), None, False))


def _regrouped(base: Rule, join: Any, q: Any, r: Any) -> Rule:
    """Two more operands, on the right side joined with each other first."""
    return within(
        base,
        lambda of: join(join(of, q), r),
        lambda of, match: join(of, join(match.mutant_q, match.mutant_r)),
    )


def addend_edits(base: Rule) -> Iterator[NamedRule]:
    """An operand that is lined up with the first axes, not with the last."""
    if len(alternatives(base.left)) > 1:
        return
    (q,) = holes("mutant_q")
    for name in ("add", "multiply"):
        yield f"{name} from the first axis", _beside(base, _op(name), q)


def _beside(base: Rule, join: Any, q: Any) -> Rule:
    def right(of: Expr, match: PatternMatch) -> Term | None:
        whole: Apply = join(of, match.mutant_q)
        return first_axes(whole) or whole

    return within(base, lambda of: join(of, q), right)


def _op(name: str) -> Any:
    found = find(name)
    assert found is not None
    return found
