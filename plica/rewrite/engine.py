"""The engine: rewrite a term with a pack until no rule applies anywhere.

Bottom up, each distinct term once; rules are indexed by the head of their left side, so a term no
rule speaks of costs one look-up.  Rules that never come to an end are named.

Note [Variables are leaves]: a variable is told apart by all its fields, its type included, so a
rewrite inside it would make another variable of it, which nothing binds.

Law: the result is a normal form (`rewrite(rewrite(t).term).steps == ()`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from plica.core.collector import paused
from plica.core.diagnostic import RuleRefused
from plica.core.fold import post_order
from plica.core.term import Term, rebuild
from plica.ir.graph import Apply
from plica.rewrite.derivation import Derivation, Rewritten, Step, Sweep
from plica.rewrite.match import Matcher
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic

Entry: TypeAlias = tuple[Rule, Matcher]
Index: TypeAlias = dict[object, tuple[Entry, ...]]  # keyed by class, or by operator name


def index_of(rules: Iterable[Rule]) -> Index:
    """The rules by head, in their order; those that fit any head stand under every head."""
    rows: dict[object, list[Entry]] = {}
    general: list[tuple[int, Entry]] = []
    placed: dict[object, list[tuple[int, Entry]]] = {}
    for number, rule in enumerate(rules):
        for head, matcher in rule.matchers:
            if head is None:
                general.append((number, (rule, matcher)))
            else:
                key: object = head[1] if head[1] is not None else head[0]
                placed.setdefault(key, []).append((number, (rule, matcher)))
    for key, found in placed.items():
        merged = sorted([*found, *general], key=lambda item: item[0])
        rows[key] = [entry for _, entry in merged]
    if general:
        rows[None] = [entry for _, entry in general]
    return {key: tuple(entries) for key, entries in rows.items()}


def step_at(term: Term, index: Index, sweep: Sweep | None) -> Step | None:
    """The first rule that applies at the root of `term`, as a step."""
    key: object = term.op if term.__class__ is Apply else term.__class__
    for rule, matcher in index.get(key, index.get(None, ())):
        after = rule.apply(matcher, term)
        if after is not None:
            return Step(rule, term, after, (), sweep)
    return None


def rewrite_with(root: Term, index: Index, fuel: int | None = None) -> Rewritten:
    """`root` rewritten to a normal form, with the steps taken."""
    memo: dict[Term, Term] = {}
    steps: list[Step] = []
    sweep = Sweep("normal")
    general = index.get(None, ())
    find = index.get
    with paused():
        order = post_order(root)
        limit = 10_000 + 100 * len(order) if fuel is None else fuel
        for node in order:
            if node in memo:
                continue
            kids = node._children
            new = node
            if kids and not node.__class__.variable:  # see Note [Variables are leaves]
                fresh = tuple([memo[kid] for kid in kids])
                if fresh != kids:
                    new = rebuild(node, fresh)
                    done = memo.get(new)
                    if done is not None:
                        memo[node] = done
                        continue
            cls = new.__class__
            key: object = new.op if cls is Apply else cls  # type: ignore[attr-defined]
            for rule, matcher in find(key, general):
                after = rule.apply(matcher, new)
                if after is not None:
                    break
            else:
                memo[node] = memo[new] = new
                continue
            step = Step(rule, new, after, (), sweep)
            steps.append(step)
            done = memo.get(after)
            if done is None:
                _settle(step, index, memo, steps, limit)
                done = memo[after]
            memo[node] = memo[new] = done
    return Rewritten(memo[root], tuple(steps))


def _settle(
    first: Step, index: Index, memo: dict[Term, Term], steps: list[Step], limit: int
) -> None:
    """Bring what a step made into normal form; `memo` learns it."""
    pending = {first.before: first}  # replaced terms whose replacement is being worked on
    stack: list[tuple[Term, Term | None]] = [(first.after, None)]
    while stack:
        node, replacement = stack.pop()
        if replacement is not None:
            memo[node] = memo[replacement]
            pending.pop(node, None)
            continue
        if node in memo:
            continue
        if type(node).variable:
            memo[node] = node
            continue
        missing = [kid for kid in node._children if kid not in memo]
        if missing:
            stack.append((node, None))
            stack.extend((kid, None) for kid in reversed(missing))
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        if new in memo:
            memo[node] = memo[new]
            continue
        step = step_at(new, index, first.sweep)
        if step is None:
            memo[node] = memo[new] = new
            continue
        steps.append(step)
        if step.after in pending:
            raise _looping([*pending.values(), step])
        if len(steps) > limit:
            raise _looping(steps[-50:])
        pending[new] = step
        if new is not node:
            stack.append((node, step.after))
        stack.append((new, step.after))
        stack.append((step.after, None))


def derive(root: Term, rules: Iterable[Rule]) -> tuple[Term, Derivation]:
    """The normal form of `root` and the derivation that leads to it."""
    done = rewrite_with(root, index_of(rules))
    return done.term, Derivation(root, done.steps)


def _looping(steps: list[Step]) -> RuleRefused:
    names = list(dict.fromkeys(step.rule.name for step in steps))
    return RuleRefused(
        Diagnostic(
            "looping-rules",
            "Rewriting does not come to an end.",
            steps[-1].rule.place,
            expected="rules that decrease some measure",
            found=f"a cycle through {', '.join(names)}",
            suggestion="Give one of them a guard, or leave one direction out.",
        )
    )
