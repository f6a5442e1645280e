"""Derivations: what rewriting did, step by step.

at(derivation, k)            the term after k steps; k from 0 (the source) to len(steps)
fork(derivation, k)          the derivation cut after k steps, to go on differently
why(derivation, term)        the source operators a term comes from, and the rules that made it
became(derivation, source)   the terms of the result that come from a source operator
first_bad(derivation, ok)    the step that made `ok` false, by bisection
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import attrs

from plica.core import CompilerBug, Term, post_order, rebuild
from plica.ir.contract import Contract, join
from plica.rewrite.match import covered
from plica.rewrite.rule import Rule, term_text
from plica.runtime.error import Diagnostic, InputError, wrong_argument
from plica.runtime.late import lazy_imports
from plica.runtime.notebook import ShownAsText
from plica.runtime.record import steps_text

with lazy_imports(__name__):
    from plica.rewrite.align import aligned


@attrs.frozen(eq=False)
class RewriteSweep:
    """One run over a whole term; steps of one run carry the same object."""

    kind: Literal["normal", "up", "down"]


@attrs.frozen(eq=False)
class DerivationStep:
    """One application of a rule: at the path, or at every occurrence of the subterm in a sweep.

    Steps of one `site` of a sweep follow each other at the same subterm; with a `whole` they take
    place inside it, at the path `inner`.
    """

    rule: Rule
    before: Term
    after: Term
    path: tuple[int, ...] = ()
    sweep: RewriteSweep | None = None
    site: int = 0
    whole: Term | None = None
    inner: tuple[int, ...] = ()


@attrs.frozen(eq=False)
class Derivation(ShownAsText):
    """A source term and its rewrite steps."""

    source: Term
    steps: tuple[DerivationStep, ...]

    @property
    def contract(self) -> Contract:
        """The join of the contracts of the rules that were used."""
        return join(step.rule.contract for step in self.steps)

    def then(self, steps: Iterable[DerivationStep]) -> Derivation:
        """The derivation continued."""
        return Derivation(self.source, self.steps + tuple(steps))

    def __str__(self) -> str:
        return steps_text(str(self.contract), [_row(step) for step in self.steps])


def _row(step: DerivationStep) -> tuple[str, str, str, str]:
    """A step as a list of them tells it; a pass changes a whole module."""
    rule = step.rule
    kind = "pass" if rule.is_pass else "computed" if rule.computed else "equation"
    did = "" if rule.is_pass else f"{_headed(step.before)} -> {_headed(step.after)}"
    return kind, rule.name, str(rule.contract), did


def _headed(of: Term) -> str:
    """The head of a term: its operator, name or class."""
    for field in ("op", "name"):
        if (word := getattr(of, field, None)) is not None:
            return str(word)
    return type(of).__name__.lower()


@attrs.frozen(eq=False)
class Rewritten:
    """The result of rewriting: the new term and the steps to it."""

    term: Term
    steps: tuple[DerivationStep, ...]


@attrs.frozen(eq=False)
class Why:
    """The origin of a term: subterms of the source, and the rules applied, in order."""

    sources: tuple[Term, ...]
    rules: tuple[Rule, ...]


@attrs.frozen(eq=False)
class Bad(ShownAsText):
    """The step that broke it: number from 1, and the terms before and after it."""

    number: int
    step: DerivationStep
    before: Term
    after: Term
    evaluations: int

    def __str__(self) -> str:
        step = self.step
        head = f"Step {self.number} broke it, by {step.rule.name} (asked {self.evaluations} times)."
        if step.rule.is_pass:
            return head
        return f"{head}\n  before: {term_text(step.before)}\n  after:  {term_text(step.after)}"


class NoSuchStep(InputError, IndexError):
    """A derivation has fewer steps than asked for."""


def at(derivation: Derivation, k: int) -> Term:
    """The term after the first `k` steps."""
    _has_step(derivation, k)
    return _replay(derivation.source, derivation.steps[:k], None)


def fork(derivation: Derivation, k: int) -> Derivation:
    """The derivation as it was after `k` steps."""
    _has_step(derivation, k)
    return Derivation(derivation.source, derivation.steps[:k])


def first_bad(derivation: Derivation, good: Callable[[Term], bool]) -> Bad | None:
    """The first step after which `good` fails, or None if it holds at the end.

    Bisection with at most ceil(log2 n) + 1 evaluations, assuming that the source is good and that
    later steps do not repair a broken one.
    """
    _is_derivation(derivation)
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
    _are_of_a_derivation(derivation, term)
    origins = provenance(derivation)
    found = origins.get(term)
    return Why((), ()) if found is None else Why(tuple(found[0]), tuple(found[1]))


def became(derivation: Derivation, source: Term) -> tuple[Term, ...]:
    """The parts of the result that come from `source`, a part of the source term."""
    _are_of_a_derivation(derivation, source)
    origins = provenance(derivation)
    final = at(derivation, len(derivation.steps))
    return tuple(
        node for node in post_order(final) if node in origins and source in origins[node][0]
    )


def _has_step(of: Derivation, k: int) -> None:
    """Refuses a number of steps that the derivation does not have."""
    _is_derivation(of)
    count = len(of.steps)
    number: object = k  # whatever a user gives
    if not isinstance(number, int) or isinstance(number, bool):
        raise wrong_argument("Steps are counted.", f"a number from 0 to {count}", k)
    if not 0 <= k <= count:
        message = f"The derivation has {count} steps, there is no {k}."
        hint = "0 is the source, and the number of steps is the result."
        expected = f"a number from 0 to {count}"
        raise NoSuchStep(Diagnostic("input-value", message, None, expected, str(k), hint))


def _is_derivation(of: Derivation) -> None:
    if not isinstance(of, Derivation):
        hint = "rewrite(term, rules) gives one, and so does exe.derivation."
        raise wrong_argument("This is no derivation.", "a Derivation", of, hint)


def _are_of_a_derivation(of: Derivation, part: Term) -> None:
    _is_derivation(of)
    if not isinstance(part, Term):
        hint = "post_order(term) lists the parts of a term."
        raise wrong_argument("This is no part of a term.", "a Term", part, hint)


# For each term: its source terms, and the rules that produced it, in order.
Origin = tuple[dict[Term, None], dict[Rule, None]]


def provenance(derivation: Derivation) -> Mapping[Term, Origin]:
    """The origin of every term of every state."""
    _is_derivation(derivation)
    origins: dict[Term, Origin] = {
        node: ({node: None}, {}) for node in post_order(derivation.source)
    }
    _replay(derivation.source, derivation.steps, origins)
    return origins


def _replay(
    source: Term, steps: tuple[DerivationStep, ...], origins: dict[Term, Origin] | None
) -> Term:
    """Apply the steps one after the other, those of one sweep together."""
    term = source
    for (path, sweep), group in itertools.groupby(steps, lambda step: (step.path, step.sweep)):
        together = tuple(group)
        spine, inner = _descend(term, path)
        if sweep is None:
            for step in together:
                if inner is not step.before:
                    message = f"The step {step.rule.name} does not find what it replaced at {path}."
                    raise CompilerBug(message)
                _learn(origins, step)
                inner = step.after
        else:
            inner = _SWEEPS[sweep.kind](inner, together, origins)
        term = _ascend(spine, inner, origins)
    return term


def _descend(term: Term, path: tuple[int, ...]) -> tuple[list[tuple[Term, int]], Term]:
    spine: list[tuple[Term, int]] = []
    for number in path:
        spine.append((term, number))
        term = term._children[number]
    return spine, term


def _ascend(spine: list[tuple[Term, int]], inner: Term, origins: dict[Term, Origin] | None) -> Term:
    """The enclosing terms with a new term at the visited place."""
    for parent, number in reversed(spine):
        kids = parent._children
        changed = rebuild(parent, (*kids[:number], inner, *kids[number + 1 :]))
        _inherit(origins, parent, changed)
        inner = changed
    return inner


def _normal(
    term: Term, steps: tuple[DerivationStep, ...], origins: dict[Term, Origin] | None
) -> Term:
    """Replaces all occurrences, including new ones, as the engine does."""
    table = {step.before: step for step in steps}
    memo: dict[Term, Term] = {}
    stack: list[tuple[Term, Term | None]] = [(term, None)]
    while stack:
        node, result = stack.pop()
        if result is not None:
            memo[node] = memo[result]
            continue
        if node in memo:
            continue
        if type(node).variable:  # a leaf, as in the engine
            memo[node] = node
            continue
        if missing := [kid for kid in node._children if kid not in memo]:
            stack.append((node, None))
            stack.extend((kid, None) for kid in missing)
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        _inherit(origins, node, new)
        if new in memo:
            memo[node] = memo[new]
            continue
        if (step := table.get(new)) is None:
            memo[node] = memo[new] = new
            continue
        _learn(origins, step)
        if new is not node:
            stack.append((node, step.after))
        stack.append((new, step.after))
        stack.append((step.after, None))
    return memo[term]


def _up(term: Term, steps: tuple[DerivationStep, ...], origins: dict[Term, Origin] | None) -> Term:
    """Replace once at each distinct term, children first."""
    sites = _sites(steps)
    memo: dict[Term, Term] = {}
    for node in post_order(term):
        new = node
        if not type(node).variable:
            new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        _inherit(origins, node, new)
        for step in sites.get(new, ()):
            _learn(origins, step)
            new = _stepped(new, step, origins)
        memo[node] = new
    return memo[term]


def _stepped(term: Term, step: DerivationStep, origins: dict[Term, Origin] | None) -> Term:
    """The result of a step on the subterm of its site."""
    spine, inner = _descend(term, step.inner)
    if inner is not step.before:
        message = f"The step {step.rule.name} does not find what it replaced at {step.inner}."
        raise CompilerBug(message)
    return _ascend(spine, step.after, origins)


def _down(
    term: Term, steps: tuple[DerivationStep, ...], origins: dict[Term, Origin] | None
) -> Term:
    """Replace once at each distinct term, parents first."""
    sites = _sites(steps)

    def head(node: Term) -> Term:
        new = node
        for step in sites.get(node, ()):
            _learn(origins, step)
            new = step.after
        return new

    def leave(node: Term, new: Term) -> None:
        _inherit(origins, node, new)

    return rebuild_top_down(head, leave, term)


def rebuild_top_down(
    head: Callable[[Term], Term], leave: Callable[[Term, Term], None], term: Term
) -> Term:
    """`map_top_down` that also tells what each changed term became."""
    heads: dict[Term, Term] = {}
    memo: dict[Term, Term] = {}
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            new = heads[node]
            memo[node] = done = rebuild(new, tuple([memo[kid] for kid in new._children]))
            leave(new, done)
        elif node not in heads:
            heads[node] = new = head(node)
            if type(new).variable:
                memo[node] = new
                continue
            stack.append((node, True))
            stack.extend((kid, False) for kid in reversed(new._children))
    return memo[term]


def _sites(steps: tuple[DerivationStep, ...]) -> dict[Term, list[DerivationStep]]:
    """The steps at each subterm of a sweep, by the original subterm."""
    found: dict[Term, list[DerivationStep]] = {}
    for _, group in itertools.groupby(steps, lambda step: step.site):
        chain = list(group)
        first = chain[0]
        found[first.before if first.whole is None else first.whole] = chain
    return found


_SWEEPS: Final = {"normal": _normal, "up": _up, "down": _down}


def _learn(origins: dict[Term, Origin] | None, step: DerivationStep) -> None:
    if origins is not None:
        _attribute(origins, step)


def _attribute(origins: dict[Term, Origin], step: DerivationStep) -> None:
    """New terms come from every node that the left side matched."""
    if step.rule.is_pass:
        _align(origins, step)
        return
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


def _align(origins: dict[Term, Origin], step: DerivationStep) -> None:
    """A pass's new terms come from what they replaced; unchanged nodes keep their origin."""
    for old, new in aligned(step.before, step.after, origins):
        sources, rules = origins.get(old, ({}, {}))
        mine, made = origins.get(new, ({}, {}))
        origins[new] = ({**mine, **sources}, {**made, **rules, step.rule: None})


def _inherit(origins: dict[Term, Origin] | None, old: Term, new: Term) -> None:
    """A node rebuilt because its children changed has the origin of the old node."""
    if origins is None or new is old:
        return
    sources, rules = origins.get(old, ({}, {}))
    mine, made = origins.get(new, ({}, {}))
    origins[new] = ({**mine, **sources}, {**made, **rules})
