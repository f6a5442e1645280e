"""Saturation: apply every rule everywhere, keep every form, then take the cheapest.

Greedy rewriting commits to each step; saturation does not, so the order of rules stops mattering
and rules may lead through terms that cost more (`(a * 2) / 2`).

Laws: the meaning is preserved; the result costs no more than the source, nor than `rewrite` of it;
the derivation leads from the source to the result; the same arguments give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias, TypeVar

import attrs

from plica.core import RuleRefused, Term
from plica.core.collector import paused
from plica.ir.contract import Contract
from plica.ir.graph.expression import Apply
from plica.rewrite.derivation import Derivation
from plica.rewrite.engine import rewrite_with
from plica.rewrite.match import Matcher
from plica.rewrite.pack import Pack
from plica.rewrite.pattern import alternatives
from plica.rewrite.rule import Rule
from plica.rewrite.saturate.cost import Cost, elements, priced, total
from plica.rewrite.saturate.egraph import Candidates, EGraph
from plica.rewrite.saturate.limit import Backoff, SaturationLimits
from plica.rewrite.saturate.proof import derivation
from plica.rewrite.saturate.scope import Choice, Scopes
from plica.rewrite.saturate.shape import with_children

Stop: TypeAlias = Literal["saturated", "nodes", "rounds"]
Entry: TypeAlias = tuple[int, Rule, Term, Matcher]


@attrs.frozen
class Saturation:
    """A result, how it was reached, and why the search for it stopped.

    `by` says whose term it is: the e-graph's, the greedy engine's, or the source's; of terms that
    cost the same it is the one with the fewest steps.
    """

    term: Term
    derivation: Derivation
    cost: int
    by: Literal["e-graph", "greedy", "source"]
    stop: Stop
    rounds: int
    nodes: int


def saturate(
    term: Term,
    rules: Pack | Iterable[Rule],
    limits: SaturationLimits | None = None,
    *,
    cost: Cost = elements,
    contract: Contract | None = None,
) -> tuple[Term, Derivation]:
    """The cheapest term found that the rules within `contract` make equal, and the way to it."""
    found = saturation(term, rules, limits, cost=cost, contract=contract)
    return found.term, found.derivation


def saturation(
    term: Term,
    rules: Pack | Iterable[Rule],
    limits: SaturationLimits | None = None,
    *,
    cost: Cost = elements,
    contract: Contract | None = None,
) -> Saturation:
    """As `saturate`, with an account of the search."""
    limits = SaturationLimits() if limits is None else limits
    used = rules if isinstance(rules, Pack) else Pack("rules", tuple(rules), "0")
    if contract is not None:
        used = used.within(contract)
    with paused():
        greedy = _greedy(term, used, cost)  # first: it refuses rules that are none of terms alone
        graph = EGraph()
        root = graph.add(term)
        graph.close()
        scopes = Scopes(graph, term)
        stop, rounds = _explore(graph, used, limits)
        scopes.follow(graph)
        best = Derivation(term, ())
        found: list[tuple[int, Literal["e-graph", "greedy", "source"], Term, Derivation]] = []
        for choose in (by_dag, by_tree):
            choice = choose(graph, priced(cost, term), scopes)
            chosen = None if choice is None else built(choice, graph.find(root))
            if choice is None or chosen is None or not scopes.keeps(choice, chosen):
                continue
            if (proof := derivation(graph, term, chosen, limits.steps)) is not None:
                result = chosen[graph.find(root)]
                found.append((total(cost, result), "e-graph", result, proof))
        found.append((total(cost, term), "source", term, best))
        found.extend(greedy)
        price, by, result, proof = min(found, key=lambda each: (each[0], len(each[3].steps)))
    return Saturation(result, proof, price, by, stop, rounds, len(graph))


def _greedy(
    term: Term, used: Pack, cost: Cost
) -> list[tuple[int, Literal["e-graph", "greedy", "source"], Term, Derivation]]:
    """The engine's normal form of the term, or nothing if the rules do not terminate on it."""
    try:
        done = rewrite_with(term, used.index)
    except RuleRefused as refused:
        if refused.code != "looping-rules":
            raise
        return []
    return [(total(cost, done.term), "greedy", done.term, Derivation(term, done.steps))]


def _explore(graph: EGraph, used: Pack, limits: SaturationLimits) -> tuple[Stop, int]:
    """Apply the rules in rounds until nothing is new or a limit is met."""
    index = _index(used)
    backoff = Backoff(limits)
    tried: set[tuple[int, Term]] = set()
    for number in range(limits.rounds):
        if len(graph) > limits.nodes:
            return "nodes", number
        merges = _round(graph, index, backoff, tried, number)
        changed = False
        for rule, before, after in merges:
            graph.add(before)
            graph.add(after)
            changed |= graph.merge(before, after, rule)
            if len(graph) > limits.nodes:
                graph.close()
                return "nodes", number + 1
        graph.close()
        if not changed:
            if not backoff.resting(number):
                return "saturated", number + 1
            backoff.wake()
    return "rounds", limits.rounds


def _round(
    graph: EGraph,
    index: dict[object, list[Entry]],
    backoff: Backoff,
    tried: set[tuple[int, Term]],
    number: int,
) -> list[tuple[Rule, Term, Term]]:
    """The equalities that rules derive from the current e-graph."""
    candidates = Candidates(graph)
    found: dict[int, list[tuple[Rule, Term, Term]]] = {}
    seen: dict[int, list[tuple[int, Term]]] = {}
    for where in sorted(graph.classes):
        heads = {_head(term): None for term in graph.classes[where].nodes.values()}
        entries = {id(each): each for head in (*heads, None) for each in index.get(head, ())}
        for which, rule, pattern, matcher in entries.values():
            if not backoff.allows(which, number):
                continue
            for term in candidates.of(pattern, where):
                if (which, term) in tried:
                    continue
                seen.setdefault(which, []).append((which, term))
                if (after := rule.apply(matcher, term)) is not None:
                    found.setdefault(which, []).append((rule, term, after))
    merges: list[tuple[Rule, Term, Term]] = []
    for which in sorted(seen):
        if backoff.count(which, len(found.get(which, ())), number):
            tried.update(seen[which])
            merges.extend(found.get(which, ()))
    return merges


def _head(term: Term) -> object:
    return term.op if isinstance(term, Apply) else term.__class__


def _index(used: Pack) -> dict[object, list[Entry]]:
    """The alternatives of the rules by the head of the terms they speak of; None: any."""
    rows: dict[object, list[Entry]] = {}
    for number, rule in enumerate(used):
        for pattern, (head, matcher) in zip(alternatives(rule.left), rule.matchers, strict=True):
            key: object = None if head is None else head[1] if head[1] is not None else head[0]
            rows.setdefault(key, []).append((number, rule, pattern, matcher))
    return rows


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
    for number, class_ in graph.classes.items():
        for _, kids in class_.nodes:
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
