"""The simplifier: index terms in canonical form, in a context.

>>> from plica.ir.type.dim import dim_var
>>> from plica.analysis.index.context import EMPTY
>>> i, j = dim_var("i"), dim_var("j")
>>> nest = EMPTY.loop(i, 4).loop(j, 8)
>>> simplify((i * 8 + j) // 8 * 8 + (i * 8 + j) % 8, nest) is simplify(i * 8 + j, nest)
True

Laws: `simplify(simplify(t, c), c) is simplify(t, c)`; the value is preserved at every integer point
of the context. Equal polynomials become one term if the context lists their variables, in that
order, and in the empty context, ordered by names. Otherwise products keep their order of
occurrence, so that schedules produce the same terms for all names.

Works bottom up with the rules of `plica.analysis.index.rules`, once per distinct term. The branches
of `Select`, the right operands of `And` and `Or` and the bodies of reductions are simplified in
their refined contexts. Results are cached in the context.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from typing import Final, TypeAlias

from plica.analysis.index.bounds import knowledge
from plica.analysis.index.context import EMPTY, FALSE, NAMED, TRUE, Context
from plica.analysis.index.point import replaced
from plica.analysis.index.rules import ContextualRewrite
from plica.analysis.index.sweep import RULES, swept
from plica.core import reached
from plica.ir.loop.scalar import And, Lit, Or, Reduce, Scalar, ScalarVar, Select, dtype_of
from plica.ir.type import bool_, i64
from plica.rewrite.derivation import Derivation, DerivationStep, at
from plica.rewrite.discriminate import Index
from plica.rewrite.make import tabled as rule
from plica.rewrite.pattern import ANYTHING, IndexHole

MAX_CONTEXTS: Final = 256
"""Beyond this many branches in one term, branch conditions are no longer assumed."""


def simplify(term: Scalar, context: Context = NAMED) -> Scalar:
    """The simplified term; in the empty context, names decide the order of summands."""
    known = knowledge(context)
    if (done := known.normal.get(term)) is not None:
        return done
    if known.impossible:  # no point is allowed: anything would be right, so nothing is used
        return simplify(term, EMPTY)
    known.trim()
    result = _normal(term, context)
    known.normal[term] = known.normal[result] = result
    return result


def simplified(
    term: Scalar, context: Context = EMPTY, rules: Index = RULES
) -> tuple[Scalar, Derivation]:
    """The simplified term, and the derivation that leads to it."""
    if knowledge(context).impossible:
        context = EMPTY
    steps: list[DerivationStep] = []
    plain = swept(term, knowledge(context), {}, rules, steps)
    result = simplify(plain, context) if rules is RULES else plain
    derivation = Derivation(term, tuple(steps))
    if at(derivation, len(steps)) is not plain:
        # The same subterm occurs inside and outside a branch or a sum: the whole is one step.
        return result, Derivation(term, (DerivationStep(INSIDE, term, result),))
    if result is plain:
        return result, derivation
    return result, derivation.then([DerivationStep(INSIDE, plain, result)])


_p, _x, _y = IndexHole("p", ANYTHING, bool_), IndexHole("x"), IndexHole("y")
INSIDE: Final = rule("under-guards", Select(_p, _x, _y), ContextualRewrite(lambda m, known: None))
"""In derivations, stands for simplifications under branch conditions."""


Job: TypeAlias = Generator[tuple[Scalar, Context], Scalar, Scalar]


def _normal(root: Scalar, context: Context) -> Scalar:
    """Runs mutually dependent jobs on an explicit stack."""
    budget = [MAX_CONTEXTS]
    stack: list[tuple[Job, Scalar, Context]] = [(_job(root, context, budget), root, context)]
    answer: Scalar | None = None
    while stack:
        job, term, inside = stack[-1]
        try:
            wanted, where = next(job) if answer is None else job.send(answer)
        except StopIteration as stop:
            stack.pop()
            answer = stop.value
            assert answer is not None
            table = knowledge(inside).normal
            table[term] = table[answer] = answer
            continue
        if (answer := knowledge(where).normal.get(wanted)) is None:
            stack.append((_job(wanted, where, budget), wanted, where))
    assert answer is not None
    return answer


MAX_SWEEPS: Final = 8


def _job(term: Scalar, context: Context, budget: list[int]) -> Job:
    known = knowledge(context)
    for _ in range(MAX_SWEEPS):
        term = swept(term, known, known.plain, RULES, None)
        changed: dict[Scalar, Scalar] = {}
        for node in _branches(term):
            new = node
            match node:
                case Select(condition, then, orelse):
                    condition = yield condition, context
                    inner = _refined(context, condition, True, budget)
                    other = _refined(context, condition, False, budget)
                    if inner is None or other is None:
                        new = orelse if inner is None else then
                    else:
                        yes = yield then, inner
                        new = Select(condition, yes, (yield orelse, other))
                case And(left, right):
                    left = yield left, context
                    inner = _refined(context, left, True, budget)
                    new = FALSE if inner is None else And(left, (yield right, inner))
                case Or(left, right):
                    left = yield left, context
                    inner = _refined(context, left, False, budget)
                    new = TRUE if inner is None else Or(left, (yield right, inner))
                case Reduce(combiner, axes, extents, body, runs):
                    sizes: list[Scalar] = []
                    for extent in extents:
                        sizes.append((yield extent, context))
                    body = yield body, _looped(context, axes, sizes)
                    new = Reduce(combiner, axes, tuple(sizes), body, runs)
            if new is not node:
                changed[node] = new
        if not changed:
            return term
        term = replaced(term, changed, _outside)
    return term


def _refined(context: Context, condition: Scalar, holds: bool, budget: list[int]) -> Context | None:
    """The context inside a branch, or None if the branch is unreachable."""
    if budget[0] <= 0 or isinstance(condition, Lit):
        return context
    known = knowledge(context)
    if (inner := known.inner.get((condition, holds))) is None:
        inner = context.where(condition) if holds else context.unless(condition)
        known.inner[condition, holds] = inner
    if inner is not context:
        budget[0] -= 1
        within = knowledge(inner)
        within.trim()
        if within.impossible:
            return None
    return inner


def _looped(context: Context, axes: tuple[ScalarVar, ...], sizes: list[Scalar]) -> Context:
    """The context inside a reduction."""
    inner = context.without(axes)
    for axis, size in zip(axes, sizes, strict=True):
        if dtype_of(axis) is i64:
            inner = inner.loop(axis, size)
    return inner if not knowledge(inner).impossible else context.without(axes)


BRANCHES: Final[frozenset[type[Scalar]]] = frozenset({Select, And, Or, Reduce})


@lru_cache(maxsize=4096)
def _branches(term: Scalar) -> tuple[Scalar, ...]:
    """The outermost nodes whose parts are looked at under a condition or a binder; mostly none."""
    return tuple([node for node in reached(_outside, term) if node.__class__ in BRANCHES])


def _outside(node: Scalar) -> list[Scalar]:
    """The parts of a node; nothing inside a branch is looked at."""
    if node.__class__ in BRANCHES or isinstance(node, ScalarVar | Lit):
        return []
    return [kid for kid in node._children if isinstance(kid, Scalar)]
