"""Rules of regions, checked as ordinary ones: some ways from a parent to a child, written out.

>>> from plica.ir.op import find
>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import dominates, holes
>>> x, y, z = holes("x y z")
>>> exp, relu = find("exp"), find("nn.relu")
>>> made = rule("relu-kept", dominates(exp(x), -y, relu(z)), relu(z))
>>> [each.left.op for each in chains(made)]
['nn.relu', 'nn.relu', 'nn.relu']
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import attrs

from plica.core import Term, map_bottom_up, post_order
from plica.ir.graph.expression import Apply, Expr
from plica.rewrite.dominate import applied, regions
from plica.rewrite.instantiate import plan
from plica.rewrite.match import PatternMatch, compiled
from plica.rewrite.pattern import Dominator, Hole, alternatives, hole_names
from plica.rewrite.rule import Rule

LENGTHS: Final = (0, 1, 2)
MAX_CHAINS: Final = 24  # how many chains of one length are tried


def chains(rule: Rule) -> tuple[Rule, ...]:
    """Ordinary rules, each the rule at chains of one shape."""
    pattern = rule.left
    assert isinstance(pattern, Dominator)
    found: dict[Term, None] = {}
    for length in LENGTHS:
        found.update(dict.fromkeys(itertools.islice(_chains(pattern, length), MAX_CHAINS)))
    return tuple(_local(rule, term) for term in found)


def _chains(pattern: Dominator, length: int) -> Iterator[Term]:
    steps = [alternatives(pattern.path)] * length
    shared = hole_names(pattern.parent)
    for parent, child, *path in itertools.product(
        alternatives(pattern.parent), alternatives(pattern.child), *steps
    ):
        entries = [_entries(term) for term in path]
        ends = [name for name in _entries(child) if name not in shared]
        for *names, last in itertools.product(*entries, ends):
            chain: Term = parent
            for at, (step, name) in enumerate(zip(path, names, strict=True)):
                chain = _filled(step, name, chain, f"_{at}")
            yield _filled(child, last, chain, "")


def _entries(pattern: Term) -> list[str]:
    """The holes for operator arguments, where a chain may enter."""
    args = [a for node in post_order(pattern) if isinstance(node, Apply) for a in node.args]
    return list(dict.fromkeys(arg.name for arg in args if isinstance(arg, Hole)))


def _filled(pattern: Term, name: str, value: Term, suffix: str) -> Term:
    """The pattern with a chain in a hole, its other holes called apart."""

    def fill(node: Term) -> Term:
        if not type(node).hole:
            return node
        of: Any = node
        return value if of.name == name else attrs.evolve(of, name=f"{of.name}{suffix}")

    return map_bottom_up(fill, pattern)


def _local(rule: Rule, left: Term) -> Rule:
    build = plan(left)
    pattern = rule.left
    assert isinstance(pattern, Dominator)

    def right(m: PatternMatch) -> Term | None:
        term = build(m.filling)
        assert isinstance(term, Expr)
        region = next((each for each in regions(pattern, term) if each.child is term), None)
        return None if region is None else applied(rule, region, None)

    return attrs.evolve(
        rule, left=left, right=right, when=None, matchers=compiled(left), build=None
    )
