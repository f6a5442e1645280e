"""Strategies: where and when rules are used.

    Strategy = Term -> Rewritten | None        None: does not apply

The vocabulary: `seq choice attempt repeat one all_ some top_down bottom_up at where`; `use` turns a
rule into a strategy. Steps carry the path of the change, so derivations need no further work. In
the pipelines of targets a pack is driven by a `Driving`, which builds a strategy from its rules:
`innermost` to a normal form, `swept_up` and `swept_down` in one sweep.

Laws: `attempt(s)` always applies; `seq(identity, s)` is `s`; `choice(fail, s)` is `s`; `repeat(s)`
ends when `s` does not apply; `innermost(p)` does not apply to its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from plica.core import RuleRefused, Term, post_order, rebuild
from plica.rewrite.derivation import (
    Derivation,
    DerivationStep,
    RewriteSweep,
    Rewritten,
    at as state_at,
    rebuild_top_down,
)
from plica.rewrite.pack import Pack, rewrite_under
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic

Strategy: TypeAlias = Callable[[Term], "Rewritten | None"]

Driving: TypeAlias = Callable[[Pack], Strategy]  # where and when the rules of a pack are used


def innermost(pack: Pack) -> Strategy:
    """The rules of a pack everywhere, children first, until none applies: the engine's strategy."""

    def run(term: Term) -> Rewritten | None:
        done = rewrite_under(term, pack)
        return done if done.steps else None

    return run


def swept_up(pack: Pack) -> Strategy:
    """The rules of a pack once at each distinct term, children first."""
    return bottom_up(choice(*pack))


def swept_down(pack: Pack) -> Strategy:
    """The rules of a pack once at each distinct term, parents first."""
    return top_down(choice(*pack))


def use(rule: Rule) -> Strategy:
    """The rule at the root."""

    def run(term: Term) -> Rewritten | None:
        after = rule.at(term)
        return None if after is None else Rewritten(after, (DerivationStep(rule, term, after, ()),))

    return run


def identity(term: Term) -> Rewritten | None:
    """Applies always and changes nothing."""
    return Rewritten(term, ())


def fail(term: Term) -> Rewritten | None:
    """Never applies."""
    return None


def seq(*strategies: Strategy | Rule) -> Strategy:
    """One after the other; applies where all do."""
    parts = tuple(map(_strategy, strategies))

    def run(term: Term) -> Rewritten | None:
        steps: list[DerivationStep] = []
        for part in parts:
            if (done := part(term)) is None:
                return None
            term = done.term
            steps.extend(done.steps)
        return Rewritten(term, tuple(steps))

    return run


def choice(*strategies: Strategy | Rule) -> Strategy:
    """The first that applies."""
    parts = tuple(map(_strategy, strategies))

    def run(term: Term) -> Rewritten | None:
        for part in parts:
            if (done := part(term)) is not None:
                return done
        return None

    return run


def attempt(strategy: Strategy | Rule) -> Strategy:
    """The strategy where it applies, otherwise nothing; always applies."""
    return choice(strategy, identity)


def repeat(strategy: Strategy | Rule, fuel: int = 10_000) -> Strategy:
    """The strategy again and again until it does not apply; always applies."""
    part = _strategy(strategy)

    def run(term: Term) -> Rewritten | None:
        steps: list[DerivationStep] = []
        for _ in range(fuel):
            done = part(term)
            if done is None or (done.term is term and not done.steps):
                return Rewritten(term, tuple(steps))
            term = done.term
            steps.extend(done.steps)
        names = list(dict.fromkeys(step.rule.name for step in steps[-50:]))
        raise RuleRefused(
            Diagnostic(
                "looping-rules",
                f"`repeat` did not come to an end in {fuel} rounds.",
                expected="rules that decrease some measure",
                found=f"a cycle through {', '.join(names)}",
            )
        )

    return run


def one(strategy: Strategy | Rule) -> Strategy:
    """At the first child where it applies."""
    part = _strategy(strategy)

    def run(term: Term) -> Rewritten | None:
        kids = term._children
        for number, kid in enumerate(kids):
            if (done := part(kid)) is not None:
                new = rebuild(term, (*kids[:number], done.term, *kids[number + 1 :]))
                return Rewritten(new, _below(number, done.steps))
        return None

    return run


def all_(strategy: Strategy | Rule) -> Strategy:
    """At every child; applies where it applies at each."""
    return _children(strategy, lambda applied, count: applied == count)


def some(strategy: Strategy | Rule) -> Strategy:
    """Applies at every child where it can; fails if there is none."""
    return _children(strategy, lambda applied, count: applied > 0)


def bottom_up(strategy: Strategy | Rule) -> Strategy:
    """Everywhere, children first, once at each distinct term; applies where it does somewhere."""
    part = _strategy(strategy)

    def run(term: Term) -> Rewritten | None:
        sweep = RewriteSweep("up")
        memo: dict[Term, Term] = {}
        steps: list[DerivationStep] = []
        done: dict[Term, Rewritten | None] = {}
        for node in post_order(term):
            new = node
            if not type(node).variable:
                new = rebuild(node, tuple([memo[kid] for kid in node._children]))
            if new not in done:
                done[new] = part(new)
                steps.extend(_swept(new, done[new], sweep, len(done)))
            result = done[new]
            memo[node] = new if result is None else result.term
        return Rewritten(memo[term], tuple(steps)) if steps else None

    return run


def top_down(strategy: Strategy | Rule) -> Strategy:
    """Everywhere, parents first, once at each distinct term; applies where it does somewhere."""
    part = _strategy(strategy)

    def run(term: Term) -> Rewritten | None:
        sweep = RewriteSweep("down")
        steps: list[DerivationStep] = []
        seen = 0

        def head(node: Term) -> Term:
            nonlocal seen
            seen += 1
            done = part(node)
            steps.extend(_swept(node, done, sweep, seen))
            return node if done is None else done.term

        new = rebuild_top_down(head, lambda node, new: None, term)
        return Rewritten(new, tuple(steps)) if steps else None

    return run


def at(path: tuple[int, ...], strategy: Strategy | Rule) -> Strategy:
    """At the subterm that the path of child numbers leads to."""
    result = _strategy(strategy)
    for number in reversed(path):
        result = _at_child(number, result)
    return result


def where(predicate: Callable[[Term], bool], strategy: Strategy | Rule) -> Strategy:
    """The strategy at terms that satisfy the predicate."""
    part = _strategy(strategy)
    return lambda term: part(term) if predicate(term) else None


def _strategy(of: Strategy | Rule) -> Strategy:
    return use(of) if isinstance(of, Rule) else of


def _at_child(number: int, part: Strategy) -> Strategy:
    def run(term: Term) -> Rewritten | None:
        kids = term._children
        if number >= len(kids):
            return None
        if (done := part(kids[number])) is None:
            return None
        new = rebuild(term, (*kids[:number], done.term, *kids[number + 1 :]))
        return Rewritten(new, _below(number, done.steps))

    return run


def _children(strategy: Strategy | Rule, enough: Callable[[int, int], bool]) -> Strategy:
    part = _strategy(strategy)

    def run(term: Term) -> Rewritten | None:
        kids = term._children
        new, applied = list(kids), 0
        steps: list[DerivationStep] = []
        for number, kid in enumerate(kids):
            if (done := part(kid)) is not None:
                applied += 1
                new[number] = done.term
                steps.extend(_below(number, done.steps))
        if not enough(applied, len(kids)):
            return None
        return Rewritten(rebuild(term, tuple(new)), tuple(steps))

    return run


def _below(number: int, steps: tuple[DerivationStep, ...]) -> tuple[DerivationStep, ...]:
    """The steps as seen from the parent."""
    return tuple(attrs.evolve(step, path=(number, *step.path)) for step in steps)


def _swept(
    term: Term, done: Rewritten | None, sweep: RewriteSweep, site: int
) -> list[DerivationStep]:
    """The result at one term of a sweep, as steps that replace the whole term."""
    if done is None or not done.steps:
        return []
    derivation = Derivation(term, done.steps)
    states = [state_at(derivation, k) for k in range(len(done.steps))] + [done.term]
    return [
        DerivationStep(step.rule, before, after, (), sweep, site)
        for step, before, after in zip(done.steps, states[:-1], states[1:], strict=True)
    ]
