"""Order: where greedy rewriting with a pack ends at something dearer than it need.

>>> from plica.ir.type.dtype import i64
>>> from plica.ir.loop.scalar import FloorDiv, Lit
>>> from plica.rewrite import index_holes, pack, rule
>>> (x,) = index_holes("x")
>>> halves = pack(
...     "halves",
...     rule("double", x * 2, x + x),
...     rule("halve", FloorDiv(x * 2, Lit(2, i64)), x),
...     version="1",
... )
>>> [(each.hiding, each.hidden) for each in order_dependent(halves)]
[(('double',), ('halve',))]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from plica.core import Name, Term, map_bottom_up
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type import bool_
from plica.rewrite.check.instance import instance
from plica.rewrite.pack import Pack, rewrite
from plica.rewrite.pattern import IndexHole, alternatives
from plica.rewrite.rule import Rule
from plica.rewrite.saturate.cost import Cost, elements, total
from plica.rewrite.saturate.limit import SaturationLimits
from plica.rewrite.saturate.run import saturation

QUICK: Final = SaturationLimits(nodes=500, rounds=6)


@attrs.frozen
class OrderDependence:
    """A term, what greedy rewriting and saturation make of it, and the rules they differ by."""

    term: Term
    greedy: Term
    best: Term
    hiding: tuple[str, ...]
    hidden: tuple[str, ...]


def order_dependent(
    rules: Pack,
    examples: int = 3,
    seed: int = 0,
    limits: SaturationLimits = QUICK,
    cost: Cost = elements,
) -> tuple[OrderDependence, ...]:
    """The order dependences met on some instances of each rule, each pair of rules once."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], OrderDependence] = {}
    for rule in rules:
        for term in instances(rule, examples, seed):
            best = saturation(term, rules, limits, cost=cost)
            greedy, derivation = rewrite(term, rules)
            if best.cost >= total(cost, greedy):
                continue
            theirs = dict.fromkeys(step.rule.name for step in derivation.steps)
            ours = dict.fromkeys(step.rule.name for step in best.derivation.steps)
            hiding = tuple(name for name in theirs if name not in ours)
            hidden = tuple(name for name in ours if name not in theirs)
            found.setdefault(
                (hiding, hidden), OrderDependence(term, greedy, best.term, hiding, hidden)
            )
    return tuple(found.values())


def instances(rule: Rule, examples: int, seed: int) -> Iterator[Term]:
    """Some terms that the left side of a rule matches, the same for the same seed."""
    source = random.Random(seed)

    def choose(options: Sequence[Any]) -> Any:  # Any: whatever the sequence holds
        return options[source.randrange(len(options))]

    for _ in range(examples):
        if not isinstance(rule.left, Scalar):
            if (made := instance(rule.left, choose, data=False)) is not None:
                yield made.term
            continue
        yield map_bottom_up(
            lambda node: _filled(node, source.randint(1, 4)), choose(alternatives(rule.left))
        )


def _filled(node: Term, number: int) -> Term:
    """A hole of an index pattern as a variable, or as a literal where only those fill it."""
    if not isinstance(node, IndexHole):
        return node
    if not node.constraint.constant:
        return ScalarVar(Name(node.name), node.dtype)
    return Lit(number % 2 == 0 if node.dtype is bool_ else number, node.dtype)
