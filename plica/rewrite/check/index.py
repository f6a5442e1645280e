"""Checking rules of index terms: they are proved, or what could be shown is said plainly."""

from __future__ import annotations

from plica.core.term import Term
from plica.rewrite.check.verdict import Counterexample, Proved, Refuted, Tested, Verdict
from plica.rewrite.index.verdict import ByInstance, ForAll, InWindow, Open, Wrong, prove_rule
from plica.rewrite.rule import Rule


def check_index(rule: Rule) -> Verdict:
    """The verdict on an index rule."""
    match prove_rule(rule):
        case ForAll(how, _):
            return Proved(rule.name, how)
        case InWindow(low, high, instances):
            note = f"each instance with constants from {low} to {high} is proved"
            return Tested(rule.name, instances, note=note)
        case ByInstance(instances, undecided):
            note = f"a computed right side: each instance is proved, {undecided} left open"
            return Tested(rule.name, instances, note=note)
        case Open(why):
            return Tested(rule.name, 0, note=why)
        case Wrong(point):
            return Refuted(rule.name, _counterexample(rule, point))


def _counterexample(rule: Rule, point: tuple[tuple[str, int], ...]) -> Counterexample:
    right = rule.right if isinstance(rule.right, Term) else None
    where = ", ".join(f"{name} = {value}" for name, value in point)
    reason = f"the sides differ at {where}"
    text = f"# {rule.name}: {reason}\n"
    return Counterexample(rule.left, right, point, None, None, reason, text)
