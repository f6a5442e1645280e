"""A sweep: an index term simplified bottom up, each distinct part once, under one context.

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> from plica.analysis.index.bounds import knowledge
>>> x = dim_var("x")
>>> swept((x + x) // 2, knowledge(EMPTY), {}, RULES, None) is x
True

Terms under a condition or a binder (the branches of `Select`, the right operands of `And` and `Or`,
the bodies of reductions) are not visited: `simplify` visits them with a refined context.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.index.bounds import wraps
from plica.analysis.index.canonical import gathered, term_of
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.polynomial import Polynomial, Product, number
from plica.analysis.index.rules import INDEX_RULES, SUMS, ContextualRewrite, RuleGuard
from plica.core import CompilerBug, fold_into, rebuild
from plica.ir.loop import scalar as sc
from plica.ir.type import i64
from plica.rewrite.derivation import DerivationStep, RewriteSweep
from plica.rewrite.discriminate import Index
from plica.rewrite.match import PatternMatch
from plica.rewrite.rule import Rule

RULES: Final[Index] = Index(INDEX_RULES)


def swept(
    root: sc.Scalar,
    known: Knowledge,
    memo: dict[sc.Scalar, sc.Scalar],
    rules: Index,
    steps: list[DerivationStep] | None,
) -> sc.Scalar:
    """Bottom up, each distinct term once, until no rule applies.

    Terms under a condition or a binder are left to `_job`. A nested sum is one unit: only its atoms
    are visited, and it is canonicalised once.
    """
    if (done := memo.get(root)) is not None:
        return done
    stack: list[tuple[sc.Scalar, sc.Scalar | None]] = [(root, None)]
    pop, push = stack.pop, stack.append
    sweep = RewriteSweep("normal")
    fuel = FUEL
    pending: dict[sc.Scalar, Rule] = {}
    while stack:
        node, replacement = pop()
        if replacement is not None:
            memo[node] = memo[replacement]
            pending.pop(node, None)
            continue
        if node in memo:
            continue
        cls = node.__class__
        new = node
        taken: tuple[Rule, sc.Scalar] | None = None
        whole = None
        if cls in SUM_RULES and sc.dtype_of(node) is i64 and not wraps(node, known):
            whole = known.polynomial(node)
            missing = [atom for atom in whole.atoms() if atom not in memo and atom is not node]
        else:
            missing = [kid for kid in _visible(node) if kid not in memo]
        if missing:
            push((node, None))
            for kid in reversed(missing):
                push((kid, None))
            continue
        if whole is not None and node not in whole.terms:
            scalar, final = _summed(whole, known, memo)
            if scalar is None or scalar is node:
                memo[node] = node
                continue
            if steps is not None:
                new = _rebuilt_sum(node, memo)
            taken = SUM_RULES[cls], scalar
            if final:
                memo[scalar] = scalar
        else:
            new = _rebuilt(node, memo)
            if new is not node:
                if (done := memo.get(new)) is not None:
                    memo[node] = done
                    continue
                if new in pending:
                    raise _endless(pending)
            if (taken := step_in(new, known, rules)) is None:
                memo[node] = memo[new] = new
                continue
        used, after = taken
        if after is new:  # only its atoms have changed
            memo[node] = memo.setdefault(new, new)
            continue
        if steps is not None:
            steps.append(DerivationStep(used, new, after, (), sweep))
        if (done := memo.get(after)) is not None:
            memo[node] = memo[new] = done
            continue
        fuel -= 1
        if after in pending or fuel < 0:
            pending[new] = used
            raise _endless(pending)
        pending[new] = used
        if new is not node:
            push((node, after))
        push((new, after))
        push((after, None))
    return memo[root]


SUM_RULES: Final[dict[type[sc.Scalar], Rule]] = dict(
    zip((sc.Add, sc.Sub, sc.Mul), SUMS, strict=True)
)


def _visible(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
    """The children that are not under a guard or a binder."""
    cls = node.__class__
    if cls is sc.ScalarVar or cls is sc.Lit or cls is sc.Reduce:
        return ()
    if cls is sc.Select or cls is sc.And or cls is sc.Or:
        return (node._children[0],)  # type: ignore[return-value]  # conditions are scalars
    return tuple([kid for kid in node._children if isinstance(kid, sc.Scalar)])


def _rebuilt(node: sc.Scalar, memo: dict[sc.Scalar, sc.Scalar]) -> sc.Scalar:
    """The node with its visible parts simplified."""
    kids = node._children
    cls = node.__class__
    if not kids or cls is sc.ScalarVar or cls is sc.Lit or cls is sc.Reduce:
        return node
    if cls is sc.Select or cls is sc.And or cls is sc.Or:
        return rebuild(node, (memo[kids[0]], *kids[1:]))  # type: ignore[index]  # a term keeps its sort
    return rebuild(node, tuple([memo[k] if isinstance(k, sc.Scalar) else k for k in kids]))


def _summed(
    whole: Polynomial, known: Knowledge, memo: dict[sc.Scalar, sc.Scalar]
) -> tuple[sc.Scalar | None, bool]:
    """The canonical term of a sum whose atoms are simplified, and whether nothing is left to do."""
    changed = False
    for atom in whole.atoms():
        if memo[atom] is not atom:
            changed = True
            break
    if changed:
        total = number(whole.constant)
        for key, coefficient in whole.terms.items():
            if isinstance(key, Product):
                part = number(1)
                for atom in key.atoms:
                    part = part.times(known.polynomial(memo[atom]))
            else:
                part = known.polynomial(memo[key])
            total = total.plus(part, coefficient)
        whole = total
    if (joined := gathered(whole, known)) is None:
        return None, False
    scalar = term_of(joined, known)
    return scalar, scalar is not None and all(memo.get(atom) is atom for atom in joined.atoms())


def _rebuilt_sum(root: sc.Scalar, memo: dict[sc.Scalar, sc.Scalar]) -> sc.Scalar:
    """A nested sum with simplified atoms, otherwise unchanged."""
    made: dict[sc.Scalar, sc.Scalar] = {}

    def parts(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
        return node._children if node.__class__ in SUM_RULES else ()  # type: ignore[return-value]  # the sides of a sum are scalars

    def rebuilt(node: sc.Scalar) -> sc.Scalar:
        if not (kids := parts(node)):
            return memo.get(node, node)
        return rebuild(node, tuple([made[kid] for kid in kids]))

    return fold_into(made, root, parts, rebuilt)


FUEL: Final = 1_000_000


def step_in(term: sc.Scalar, known: Knowledge, rules: Index) -> tuple[Rule, sc.Scalar] | None:
    """The first rule that applies at the root of `term` in the context."""
    entries = rules.candidates(term)
    if not entries or wraps(term, known):
        return None
    for used, matcher in entries:
        filling: dict[str, sc.Scalar] = {}
        if not matcher(term, filling):
            continue
        if (when := used.when) is not None:
            if isinstance(when, RuleGuard):
                if not when.holds(filling, known):
                    continue
            elif not when(PatternMatch(filling)):
                continue
        right = used.right
        if used.build is not None:
            after = used.build(filling)
        elif isinstance(right, ContextualRewrite):
            after = right.run(PatternMatch(filling), known)
        else:
            raise CompilerBug(f"The index rule {used.name} does not say what it needs to know.")
        if after is not None and after is not term:
            return used, after
    return None


def _endless(pending: dict[sc.Scalar, Rule]) -> CompilerBug:
    names = list(dict.fromkeys(rule.name for rule in pending.values()))[-8:]
    return CompilerBug(f"Simplifying does not come to an end: a cycle through {', '.join(names)}.")
