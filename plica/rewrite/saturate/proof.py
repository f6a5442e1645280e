"""Proofs as derivations: the path from a source to the extracted term, as ordinary steps.

>>> from plica.rewrite import index_holes, rule
>>> (x,) = index_holes("x")
>>> backwards(rule("add-zero", x + 0, x)).name
'add-zero (backwards)'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plica.core import Term, rebuild
from plica.rewrite.derivation import Derivation, DerivationStep, RewriteSweep
from plica.rewrite.pattern import Hole
from plica.rewrite.rule import Rule
from plica.rewrite.saturate.egraph import EGraph
from plica.rewrite.saturate.forest import Edge
from plica.rewrite.saturate.shape import is_leaf, open_children, with_children

ANY: Final = Hole("whole")


def backwards(rule: Rule) -> Rule:
    """The reversed rule, as a record of a step: it does not match anything by itself.

    Its left side is the right side of the rule where that is a term.
    """
    left = rule.right if isinstance(rule.right, Term) else ANY
    name = f"{rule.name} (backwards)"
    return Rule(name, left, rule.left, rule.contract, None, rule.place, ((None, _never),), None)


def _never(term: object, filling: object) -> bool:
    return False


def derivation(
    graph: EGraph, source: Term, chosen: Mapping[int, Term], limit: int
) -> Derivation | None:
    """The derivation from the source to the extracted term, or None if it has too many steps."""
    turned: dict[Rule, Rule] = {}
    sweep = RewriteSweep("up")
    steps: list[DerivationStep] = []
    made: dict[Term, Term] = {}
    stack = [source]
    while stack:
        node = stack[-1]
        if node in made:
            stack.pop()
            continue
        if is_leaf(node) and node is not source:
            made[node] = node  # a variable stands in binders too: only its users change
            stack.pop()
            continue
        if missing := [kid for kid in open_children(node) if kid not in made]:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        new = with_children(node, [made[kid] for kid in open_children(node)])
        number = graph.add(new)
        goal = chosen.get(number)
        if goal is None:  # a child chose another node, below which this class is not needed
            made[node] = new
            continue
        graph.add(goal)
        if (edges := graph.forest.explain(new, goal, limit - len(steps))) is None:
            return None
        site = len(steps)
        steps.extend(
            DerivationStep(
                edge.rule if edge.forward else turned.setdefault(edge.rule, backwards(edge.rule)),
                edge.before,
                edge.after,
                (),
                sweep,
                site,
                new,
                edge.path,
            )
            for edge in shortened(new, edges)
        )
        made[node] = goal
    return Derivation(source, tuple(steps))


def shortened(start: Term, edges: list[Edge]) -> list[Edge]:
    """The edges less those between two visits of one term."""
    kept: list[Edge] = []
    states = [start]
    places = {start: 0}
    for edge in edges:
        state = replaced(states[-1], edge.path, edge.after)
        if (back := places.get(state)) is None:
            places[state] = len(states)
            states.append(state)
            kept.append(edge)
            continue
        for gone in states[back + 1 :]:
            del places[gone]
        del states[back + 1 :], kept[back:]
    return kept


def replaced(term: Term, path: tuple[int, ...], new: Term) -> Term:
    """The term with its subterm at a path replaced."""
    spine: list[tuple[Term, int]] = []
    for number in path:
        spine.append((term, number))
        term = term._children[number]
    for parent, number in reversed(spine):
        kids = parent._children
        new = rebuild(parent, (*kids[:number], new, *kids[number + 1 :]))
    return new
