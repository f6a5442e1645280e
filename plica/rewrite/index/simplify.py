"""The simplifier: an index term in canonical form, under what a context knows.

>>> from plica.ir.dim import dim_var
>>> from plica.rewrite.index.context import EMPTY
>>> i, j = dim_var("i"), dim_var("j")
>>> nest = EMPTY.loop(i, 4).loop(j, 8)
>>> simplify((i * 8 + j) // 8 * 8 + (i * 8 + j) % 8, nest) is simplify(i * 8 + j, nest)
True

Laws: `simplify(simplify(t, c), c) is simplify(t, c)`; the value is kept at every integer point that
the context allows.  Polynomials that are equal become one term where the context lists their
variables; otherwise products keep the order in which they come.

Bottom up with the rules of `plica.rewrite.index.rules`, each distinct term once; the branches of
`Select`, the right sides of `And` and `Or` and the bodies of reductions with what is known inside
them.  Answers are remembered with the context.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from plica.core.diagnostic import CompilerBug
from plica.core.term import Term, rebuild
from plica.ir.dtype import bool_, i64
from plica.ir.scalar import (
    Add,
    And,
    Lit,
    Mul,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    dtype_of,
)
from plica.rewrite.derivation import Derivation, Step, Sweep, at
from plica.rewrite.engine import Index, index_of
from plica.rewrite.index.bounds import wraps
from plica.rewrite.index.canonical import gathered, term_of
from plica.rewrite.index.context import EMPTY, FALSE, TRUE, Context
from plica.rewrite.index.guard import Given, Within
from plica.rewrite.index.knowledge import Knowledge, knowledge
from plica.rewrite.index.polynomial import Polynomial, Product, number
from plica.rewrite.index.rules import INDEX_RULES, SUMS
from plica.rewrite.make import rule
from plica.rewrite.match import Match
from plica.rewrite.pattern import ANYTHING, IndexHole
from plica.rewrite.rule import Rule

RULES: Final[Index] = index_of(INDEX_RULES)
MOST_CONTEXTS: Final = 256
"""Branches beyond this many in one term are simplified without what is known inside them."""


def simplify(term: Scalar, context: Context = EMPTY) -> Scalar:
    """The simplified term."""
    known = knowledge(context)
    done = known.normal.get(term)
    if done is not None:
        return done
    if known.impossible:  # no point is allowed: anything would be right, so nothing is used
        return simplify(term) if context is not EMPTY else term
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
    steps: list[Step] = []
    plain = _plain(term, knowledge(context), {}, rules, steps)
    result = simplify(plain, context) if rules is RULES else plain
    derivation = Derivation(term, tuple(steps))
    if at(derivation, len(steps)) is not plain:
        # The same subterm stands inside and outside a branch or a sum: then the whole is one step.
        return result, Derivation(term, (Step(INSIDE, term, result),))
    if result is plain:
        return result, derivation
    return result, derivation.then([Step(INSIDE, plain, result)])


_p, _x, _y = IndexHole("p", ANYTHING, bool_), IndexHole("x"), IndexHole("y")
INSIDE: Final = rule("under-guards", Select(_p, _x, _y), Within(lambda m, known: None))
"""Stands in derivations for what was simplified with what is known inside branches."""


def _plain(
    root: Scalar,
    known: Knowledge,
    memo: dict[Scalar, Scalar],
    rules: Index,
    steps: list[Step] | None,
) -> Scalar:
    """Bottom up, each distinct term once, until no rule applies.

    What is looked at under a condition or a binder is left to `_job`.  A sum of sums is taken as
    one: only its atoms are visited, and it is brought into canonical form once.
    """
    done = memo.get(root)
    if done is not None:
        return done
    stack: list[tuple[Scalar, Scalar | None]] = [(root, None)]
    pop, push = stack.pop, stack.append
    sweep = Sweep("normal")
    fuel = FUEL
    pending: dict[Scalar, Rule] = {}
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
        taken: tuple[Rule, Scalar] | None = None
        whole = None
        if cls in SUM_RULES and dtype_of(node) is i64 and not wraps(node, known):
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
            made, final = _summed(whole, known, memo)
            if made is None or made is node:
                memo[node] = node
                continue
            if steps is not None:
                new = _rebuilt_sum(node, memo)
            taken = SUM_RULES[cls], made
            if final:
                memo[made] = made
        else:
            new = _rebuilt(node, memo)
            if new is not node:
                done = memo.get(new)
                if done is not None:
                    memo[node] = done
                    continue
                if new in pending:
                    raise _endless(pending)
            taken = _step(new, known, rules)
            if taken is None:
                memo[node] = memo[new] = new
                continue
        used, after = taken
        if after is new:  # only its atoms have changed
            memo[node] = memo.setdefault(new, new)
            continue
        if steps is not None:
            steps.append(Step(used, new, after, (), sweep))
        done = memo.get(after)
        if done is not None:
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


SUM_RULES: Final = dict(zip((Add, Sub, Mul), SUMS, strict=True))


def _visible(node: Scalar) -> tuple[Scalar, ...]:
    """The parts that are looked at wherever the node is: not what a guard or a binder hides."""
    cls = node.__class__
    if cls is ScalarVar or cls is Lit or cls is Reduce:
        return ()
    if cls is Select or cls is And or cls is Or:
        return (node._children[0],)  # type: ignore[return-value]  # conditions are scalars
    return tuple([kid for kid in node._children if isinstance(kid, Scalar)])


def _rebuilt(node: Scalar, memo: dict[Scalar, Scalar]) -> Scalar:
    """The node with its visible parts simplified."""
    kids = node._children
    cls = node.__class__
    if not kids or cls is ScalarVar or cls is Lit or cls is Reduce:
        return node
    if cls is Select or cls is And or cls is Or:
        return rebuild(node, (memo[kids[0]], *kids[1:]))  # type: ignore[index]
    return rebuild(node, tuple([memo[k] if isinstance(k, Scalar) else k for k in kids]))


def _summed(
    whole: Polynomial, known: Knowledge, memo: dict[Scalar, Scalar]
) -> tuple[Scalar | None, bool]:
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
    joined = gathered(whole, known)
    if joined is None:
        return None, False
    made = term_of(joined, known)
    return made, made is not None and all(memo.get(atom) is atom for atom in joined.atoms())


def _rebuilt_sum(root: Scalar, memo: dict[Scalar, Scalar]) -> Scalar:
    """A sum of sums with simplified atoms, otherwise as it stands."""
    made: dict[Scalar, Scalar] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in made:
            stack.pop()
            continue
        if node.__class__ not in SUM_RULES:
            made[node] = memo.get(node, node)
            continue
        missing = [kid for kid in node._children if kid not in made]
        if missing:
            stack += missing  # type: ignore[arg-type]  # the sides of a sum are scalars
            continue
        made[node] = rebuild(node, tuple([made[kid] for kid in node._children]))  # type: ignore[index]
    return made[root]


FUEL: Final = 1_000_000


def _step(term: Scalar, known: Knowledge, rules: Index) -> tuple[Rule, Scalar] | None:
    """The first rule that applies at the root of `term` under what is known."""
    entries = rules.get(term.__class__)
    if entries is None or wraps(term, known):
        return None
    for used, matcher in entries:
        filling: dict[str, Scalar] = {}
        if not matcher(term, filling):
            continue
        when = used.when
        if when is not None:
            if isinstance(when, Given):
                if not when.holds(filling, known):
                    continue
            elif not when(Match(filling)):
                continue
        right = used.right
        if used.build is not None:
            after = used.build(filling)
        elif isinstance(right, Within):
            after = right.run(Match(filling), known)
        else:
            raise CompilerBug(f"The index rule {used.name} does not say what it needs to know.")
        if after is not None and after is not term:
            return used, after
    return None


def _endless(pending: dict[Scalar, Rule]) -> CompilerBug:
    names = list(dict.fromkeys(each.name for each in pending.values()))[-8:]
    return CompilerBug(f"Simplifying does not come to an end: a cycle through {', '.join(names)}.")


# --- inside branches -----------------------------------------------------------------------------

Job: TypeAlias = Generator[tuple[Scalar, Context], Scalar, Scalar]


def _normal(root: Scalar, context: Context) -> Scalar:
    """Run jobs that ask for other jobs, on a stack of our own."""
    budget = [MOST_CONTEXTS]
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
        answer = knowledge(where).normal.get(wanted)
        if answer is None:
            stack.append((_job(wanted, where, budget), wanted, where))
    assert answer is not None
    return answer


ROUNDS: Final = 8


def _job(term: Scalar, context: Context, budget: list[int]) -> Job:
    known = knowledge(context)
    for _ in range(ROUNDS):
        term = _plain(term, known, known.plain, RULES, None)
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
                case Reduce(combiner, axes, extents, body):
                    sizes: list[Scalar] = []
                    for extent in extents:
                        sizes.append((yield extent, context))
                    body = yield body, _looped(context, axes, sizes)
                    new = Reduce(combiner, axes, tuple(sizes), body)
            if new is not node:
                changed[node] = new
        if not changed:
            return term
        term = _replaced(term, changed)
    return term


def _refined(context: Context, condition: Scalar, holds: bool, budget: list[int]) -> Context | None:
    """The context inside a branch; None where no point gets there."""
    if budget[0] <= 0 or isinstance(condition, Lit):
        return context
    inner = context.where(condition) if holds else context.unless(condition)
    if inner is not context:
        budget[0] -= 1
        if knowledge(inner).impossible:
            return None
    return inner


def _looped(context: Context, axes: tuple[ScalarVar, ...], sizes: list[Scalar]) -> Context:
    """The context inside a reduction."""
    inner = context.without(axes)
    for axis, size in zip(axes, sizes, strict=True):
        if dtype_of(axis) is i64:
            inner = inner.loop(axis, size)
    return inner if not knowledge(inner).impossible else context.without(axes)


def _branches(term: Scalar) -> list[Scalar]:
    """The outermost nodes whose parts are looked at under a condition or a binder."""
    found: list[Scalar] = []
    seen: set[Term] = set()
    stack: list[Scalar] = [term]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Select | And | Or | Reduce):
            found.append(node)
        elif not isinstance(node, ScalarVar | Lit):
            stack += [kid for kid in reversed(node._children) if isinstance(kid, Scalar)]
    return found


def _replaced(term: Scalar, changed: dict[Scalar, Scalar]) -> Scalar:
    """The term with other branches; nothing inside a branch is looked at."""
    memo: dict[Scalar, Scalar] = dict(changed)
    stack = [term]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
            continue
        if isinstance(node, ScalarVar | Lit | Select | And | Or | Reduce):
            memo[node] = node
            continue
        missing = [k for k in node._children if isinstance(k, Scalar) and k not in memo]
        if missing:
            stack += missing
            continue
        kids = tuple([memo[k] if isinstance(k, Scalar) else k for k in node._children])
        memo[node] = rebuild(node, kids)
    return memo[term]
