"""The engine: rewrite a term with a pack until no rule applies anywhere.

Bottom up, each distinct term once; rules are indexed by the head of their left side, so a term
without rules costs one lookup. Looping rules are named.

Note [Variables are leaves]: a variable's identity includes all its fields, its type included, so
rewriting inside it would create a different, unbound variable.

Law: the result is a normal form (`rewrite(rewrite(t).term).steps == ()`).
"""

from __future__ import annotations

from collections.abc import Iterable

from plica.core import RuleRefused, Term, post_order, rebuild
from plica.core.collector import paused
from plica.rewrite.derivation import Derivation, DerivationStep, RewriteSweep, Rewritten
from plica.rewrite.discriminate import Index
from plica.rewrite.match import covered
from plica.rewrite.pattern import Dominator, Outputs
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic


def step_at(
    term: Term, index: Index, sweep: RewriteSweep | None, whole: set[Term]
) -> DerivationStep | None:
    """The first rule that applies at the root of `term`, as a step."""
    for rule, matcher in index.candidates(term):
        after = rule.apply(matcher, term)
        if after is not None and not (whole and _breaks(rule, term, whole)):
            return DerivationStep(rule, term, after, (), sweep)
    return None


def _breaks(rule: Rule, term: Term, whole: set[Term]) -> bool:
    """Whether the left side would decompose, below its root, a term that must stay whole."""
    return any(node in whole for node in covered(rule.left, term)[1:])


def rewrite_with(
    root: Term,
    index: Index,
    fuel: int | None = None,
    whole: Iterable[Term] = (),
    asked: Iterable[Term] = (),
) -> Rewritten:
    """`root` rewritten to a normal form, with the steps.

    A term in `whole`, and its results, may fill a hole, but no rule matches inside it from above,
    so a value with other uses is not recomputed for one of them. No rule replaces a term that must
    stay as it was `asked` for.
    """
    memo: dict[Term, Term] = {}
    kept, still = set(whole), set(asked)
    steps: list[DerivationStep] = []
    sweep = RewriteSweep("normal")
    candidates = index.candidates
    for asks in (Dominator, Outputs):
        if asks in index.rows:
            raise _local(index.rows[asks][0][0])
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
                    if (done := memo.get(new)) is not None:
                        memo[node] = done
                        continue
            for rule, matcher in () if node in still else candidates(new):
                after = rule.apply(matcher, new)
                if after is not None and not (kept and _breaks(rule, new, kept)):
                    break
            else:
                memo[node] = memo[new] = new
                if node in kept:
                    kept.add(new)
                continue
            step = DerivationStep(rule, new, after, (), sweep)
            steps.append(step)
            if (done := memo.get(after)) is None:
                _settle(step, index, memo, steps, limit, kept)
                done = memo[after]
            memo[node] = memo[new] = done
            if node in kept:
                kept.add(done)
    return Rewritten(memo[root], tuple(steps))


def _settle(  # noqa: PLR0917  # it shares the state of a rewriting
    first: DerivationStep,
    index: Index,
    memo: dict[Term, Term],
    steps: list[DerivationStep],
    limit: int,
    whole: set[Term],
) -> None:
    """Normalises the result of a step and memoises it."""
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
        if missing := [kid for kid in node._children if kid not in memo]:
            stack.append((node, None))
            stack.extend((kid, None) for kid in reversed(missing))
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        if new in memo:
            memo[node] = memo[new]
            continue
        if (step := step_at(new, index, first.sweep, whole)) is None:
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
    done = rewrite_with(root, Index(rules))
    return done.term, Derivation(root, done.steps)


def _local(rule: Rule) -> RuleRefused:
    message = f"{rule.name} asks who uses a term, and this rewriting looks at terms alone."
    hint = "Rewrite a module with it, not a term."
    return RuleRefused(Diagnostic("bad-rule", message, rule.place, suggestion=hint))


def _looping(steps: list[DerivationStep]) -> RuleRefused:
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
