"""Extraction: a cheap term among those that an e-graph holds equal to the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from plica.core import Term
from plica.rewrite.saturate.cost import Cost
from plica.rewrite.saturate.egraph import EGraph
from plica.rewrite.saturate.scope import Choice, Scopes
from plica.rewrite.saturate.shape import with_children

S = TypeVar("S")

MAX_EXACT_CLASSES: Final = 400
"""Classes up to which shared costs are followed exactly: the sets grow with the square."""


def by_tree(graph: EGraph, cost: Cost, scopes: Scopes) -> Choice:
    """The choice with the least cost of trees."""

    def state(_: int, own: int, kids: list[int]) -> tuple[int, int]:
        below = own + sum(kids)
        return below, below

    return _least(graph, cost, scopes, state)


def by_dag(graph: EGraph, cost: Cost, scopes: Scopes) -> Choice | None:
    """A choice that counts shared classes once, or None if the e-graph is too large."""
    if len(graph.classes) > MAX_EXACT_CLASSES:
        return None

    def state(number: int, own: int, kids: list[dict[int, int]]) -> tuple[int, dict[int, int]]:
        whole: dict[int, int] = {}
        for kid in kids:
            whole |= kid
        if number in whole:
            return -1, whole  # inside itself
        whole[number] = own
        return sum(whole.values()), whole

    return _least(graph, cost, scopes, state)


def _least(
    graph: EGraph, cost: Cost, scopes: Scopes, state: Callable[[int, int, list[S]], tuple[int, S]]
) -> Choice:
    """Improve the choices until none can be: a class is looked at again when one below changes.

    A choice is replaced by a strictly cheaper one only, so no term chosen contains itself.
    """
    choice: Choice = {}
    best: dict[int, int] = {}
    below: dict[int, S] = {}
    free: dict[int, int] = {}
    users: dict[int, dict[int, None]] = {}
    for number, each in graph.classes.items():
        for _, kids in each.nodes:
            for kid in kids:
                users.setdefault(kid, {})[number] = None
    queue: dict[int, None] = dict.fromkeys(sorted(graph.classes))
    while queue:
        number = next(iter(queue))
        del queue[number]
        improved = False
        for (_, kids), term in graph.classes[number].nodes.items():
            if any(kid not in best for kid in kids):
                continue
            price, whole = state(number, cost(term), [below[kid] for kid in kids])
            if price < 0 or (number in best and price >= best[number]):
                continue
            variables = scopes.free(term, [free[kid] for kid in kids]) if scopes.needed else 0
            if not scopes.fits(number, variables):
                continue
            best[number], below[number], free[number] = price, whole, variables
            choice[number] = (term, kids)
            improved = True
        if improved:
            queue.update(users.get(number, {}))
    return choice


def built(choice: Choice, root: int) -> dict[int, Term] | None:
    """The chosen terms of a class and those below it, or None if some class has no choice."""
    made: dict[int, Term] = {}
    stack = [root]
    entered: set[int] = set()
    while stack:
        number = stack[-1]
        if number in made:
            stack.pop()
            continue
        if number not in choice:
            return None
        term, kids = choice[number]
        if missing := [kid for kid in dict.fromkeys(kids) if kid not in made]:
            if number in entered:
                return None  # it would contain itself
            entered.add(number)
            stack.extend(reversed(missing))
            continue
        stack.pop()
        made[number] = with_children(term, [made[kid] for kid in kids])
    return made
