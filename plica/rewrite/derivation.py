"""Derivations: what rewriting did, step by step.

A step says which rule replaced which subterm by which; it holds no module.  Since equal terms are
one object, a step without a path means "wherever that subterm stands", and any state of a
derivation is found again by replaying a prefix of its steps in one pass.

    at(derivation, k)            the term after k steps; k from 0 (the source) to len(steps)
    fork(derivation, k)          the derivation cut after k steps, to go on differently
    why(derivation, term)        the source operators a term comes from, and the rules that made it
    became(derivation, source)   the terms of the result that come from a source operator
    first_bad(derivation, ok)    the step that made `ok` false, by bisection
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from plica.core.digest import Path
from plica.core.fold import post_order
from plica.core.term import Term, rebuild
from plica.rewrite.contract import Contract, join
from plica.rewrite.match import covered
from plica.rewrite.rule import Rule


@attrs.frozen(eq=False)
class Step:
    """One application of a rule; no path means everywhere the subterm stands."""

    rule: Rule
    before: Term
    after: Term
    path: Path | None = None


@attrs.frozen(eq=False)
class Derivation:
    """A source term and the steps that were taken from it."""

    source: Term
    steps: tuple[Step, ...]

    @property
    def contract(self) -> Contract:
        """The join of the contracts of the rules that were used."""
        return join(step.rule.contract for step in self.steps)

    def then(self, steps: Iterable[Step]) -> Derivation:
        """The derivation continued."""
        return Derivation(self.source, self.steps + tuple(steps))


@attrs.frozen(eq=False)
class Rewritten:
    """The result of rewriting: the new term and the steps taken to it."""

    term: Term
    steps: tuple[Step, ...]


@attrs.frozen(eq=False)
class Why:
    """Where a term comes from: subterms of the source, and the rules on the way, in order."""

    sources: tuple[Term, ...]
    rules: tuple[Rule, ...]


@attrs.frozen(eq=False)
class Bad:
    """The step that broke it: number from 1, and the terms before and after it."""

    number: int
    step: Step
    before: Term
    after: Term
    evaluations: int


def at(derivation: Derivation, k: int) -> Term:
    """The term after the first `k` steps."""
    if not 0 <= k <= len(derivation.steps):
        raise IndexError(f"The derivation has {len(derivation.steps)} steps, there is no {k}.")
    return _replay(derivation.source, derivation.steps[:k], None)


def fork(derivation: Derivation, k: int) -> Derivation:
    """The derivation as it was after `k` steps."""
    if not 0 <= k <= len(derivation.steps):
        raise IndexError(f"The derivation has {len(derivation.steps)} steps, there is no {k}.")
    return Derivation(derivation.source, derivation.steps[:k])


def first_bad(derivation: Derivation, good: Callable[[Term], bool]) -> Bad | None:
    """The first step after which `good` does not hold, None where it holds at the end.

    Bisection: at most ceil(log2 n) + 1 evaluations, where the source is taken to be good and a
    step that breaks it is not mended by later ones.
    """
    low, high = 0, len(derivation.steps)
    if high == 0 or good(at(derivation, high)):
        return None
    asked = 1
    while high - low > 1:
        middle = (low + high) // 2
        asked += 1
        if good(at(derivation, middle)):
            low = middle
        else:
            high = middle
    step = derivation.steps[high - 1]
    return Bad(high, step, at(derivation, low), at(derivation, high), asked)


def why(derivation: Derivation, term: Term) -> Why:
    """The source operators that `term`, a part of the result, comes from."""
    origins = provenance(derivation)
    found = origins.get(term)
    return Why((), ()) if found is None else Why(tuple(found[0]), tuple(found[1]))


def became(derivation: Derivation, source: Term) -> tuple[Term, ...]:
    """The parts of the result that come from `source`, a part of the source term."""
    origins = provenance(derivation)
    final = at(derivation, len(derivation.steps))
    return tuple(
        node for node in post_order(final) if node in origins and source in origins[node][0]
    )


# For each term: the source terms it comes from and the rules that made it, in order.
Origin = tuple[dict[Term, None], dict[Rule, None]]


def provenance(derivation: Derivation) -> Mapping[Term, Origin]:
    """Where every term of every state comes from."""
    origins: dict[Term, Origin] = {
        node: ({node: None}, {}) for node in post_order(derivation.source)
    }
    _replay(derivation.source, derivation.steps, origins)
    return origins


def _replay(source: Term, steps: tuple[Step, ...], origins: dict[Term, Origin] | None) -> Term:
    """Apply the steps; runs of steps without a path go in one bottom-up pass."""
    term = source
    i = 0
    while i < len(steps):
        step = steps[i]
        if step.path is None:
            j = i
            while j < len(steps) and steps[j].path is None:
                j += 1
            term = _everywhere(term, steps[i:j], origins)
            i = j
        else:
            term = _at_path(term, step, origins)
            i += 1
    return term


def _everywhere(term: Term, steps: tuple[Step, ...], origins: dict[Term, Origin] | None) -> Term:
    table = {step.before: step for step in steps}
    memo: dict[Term, Term] = {}
    stack: list[tuple[Term, Term | None]] = [(term, None)]
    waiting: set[Term] = set()
    while stack:
        node, result = stack.pop()
        if result is not None:
            memo[node] = memo.get(result, result)
            waiting.discard(node)
            continue
        if node in memo:
            continue
        missing = [kid for kid in node._children if kid not in memo]
        if missing:
            stack.append((node, None))
            stack.extend((kid, None) for kid in missing)
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        if new is not node and origins is not None:
            _inherit(origins, node, new)
        step = table.get(new)
        if step is None or new in waiting:
            memo[node] = memo[new] = new
            continue
        if origins is not None:
            _attribute(origins, step)
        waiting.add(new)
        stack.append((node, step.after))
        stack.append((new, step.after))
        stack.append((step.after, None))
    return memo[term]


def _attribute(origins: dict[Term, Origin], step: Step) -> None:
    """What a step made comes from every node that its left side took apart."""
    sources: dict[Term, None] = {}
    rules: dict[Rule, None] = {}
    for node in covered(step.rule.left, step.before):
        theirs, made = origins.get(node, ({}, {}))
        sources |= theirs
        rules |= made
    rules[step.rule] = None
    fresh = [step.after]
    for node in fresh:  # new nodes only: what was known before keeps its own origin
        if node in origins and node is not step.after:
            continue
        mine, made = origins.get(node, ({}, {}))
        known = node in origins
        origins[node] = ({**mine, **sources}, {**made, **rules})
        if not known:
            fresh.extend(node._children)


def _inherit(origins: dict[Term, Origin], old: Term, new: Term) -> None:
    """A node rebuilt because its children changed comes from what it was."""
    sources, rules = origins.get(old, ({}, {}))
    mine, made = origins.get(new, ({}, {}))
    origins[new] = ({**mine, **sources}, {**made, **rules})


def _at_path(term: Term, step: Step, origins: dict[Term, Origin] | None) -> Term:
    """Replace the one occurrence that the path leads to."""
    path = step.path or ()
    spine: list[tuple[Term, int]] = []
    node = term
    rest: tuple[Any, ...] = path
    while rest:
        number = rest[0]
        spine.append((node, number))
        node = node._children[number]
        rest = rest[1:]
    if node is not step.before:
        raise ValueError(f"The step {step.rule.name} does not find what it replaced at {path}.")
    if origins is not None:
        _attribute(origins, step)
    new = step.after
    for parent, number in reversed(spine):
        kids = parent._children
        changed = rebuild(parent, (*kids[:number], new, *kids[number + 1 :]))
        if origins is not None:
            _inherit(origins, parent, changed)
        new = changed
    return new
