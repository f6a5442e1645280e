"""Verdicts on index rules: proved, certified instance by instance, refuted, or left open.

    RuleVerdict ::= ForAll(how, certificate)        for all integers, whatever the constants
                  | InWindow(low, high, instances)  each constant in the window; others when met
                  | ByInstance(instances, …)        a computed right side: that many proved
                  | WrongRule(point)                the sides differ there
                  | OpenQuestion(why)

>>> from plica.analysis.index.rules import given, positive
>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import index_constants, index_holes
>>> x, y = index_holes("x y")
>>> c, d = index_constants("c d")
>>> good = rule("good", (x // c) // d, x // (c * d), when=given(positive(c), positive(d)))
>>> prove_rule(good).how
'for all integers, whatever the constants'
>>> prove_rule(rule("bad", (x + y) // c, x // c + y // c, when=given(positive(c)))).point
(('c', 2), ('x', 1), ('y', 1))

The holes of a rule are integers like any other, so a proof of the equation under the guard is a
proof of the rule, constants included.  Where none is found, each instance is an equation in the
complete fragment: those with constants in a window are proved beforehand, any other when it is met
(`certify`).  A guard, a predicate or a right side that is a function is only ever seen at
instances.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from math import prod
from typing import Any, Final, TypeAlias

import attrs

from plica.analysis.index.bounds import knowledge
from plica.analysis.index.certificate import Certificate, holds
from plica.analysis.index.context import EMPTY, Context
from plica.analysis.index.point import atoms, value
from plica.analysis.index.polynomial import literal
from plica.analysis.index.prove import Fails, Holds, Undecided, decide, same
from plica.analysis.index.rules import ContextualRewrite, RuleGuard
from plica.core import Name, Term, all_of, digest
from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Min, Scalar, ScalarVar, Select, dtype_of
from plica.ir.type import bool_, i64
from plica.rewrite.instantiate import plan
from plica.rewrite.match import PatternMatch
from plica.rewrite.pattern import IndexHole, alternatives
from plica.rewrite.rule import Rule


@attrs.frozen
class ForAll:
    """The sides are equal at all integers that the guard allows."""

    how: str
    certificate: Certificate


@attrs.frozen
class InWindow:
    """Every instance whose constants lie in the window is proved; others are when they are met."""

    low: int
    high: int
    instances: int


@attrs.frozen
class ByInstance:
    """The right side is a function: that many instances were each proved, some left open."""

    instances: int
    undecided: int = 0


@attrs.frozen
class WrongRule:
    """The sides differ where the holes have these values.

    For a computed right side, `instance` holds the two sides of the failing instance and the values
    of their variables.
    """

    point: tuple[tuple[str, int], ...]
    instance: tuple[Scalar, Scalar, tuple[tuple[Scalar, int], ...]] | None = None


@attrs.frozen
class OpenQuestion:
    """Nothing was shown."""

    why: str


RuleVerdict: TypeAlias = ForAll | InWindow | ByInstance | WrongRule | OpenQuestion

WINDOW: Final = (-6, 12)
MAX_IN_WINDOW: Final = 20_000
MAX_DISTANCE_OF_SAMPLES: Final = 4096  # how far numbers are looked for that a predicate allows
MAX_INSTANCES: Final = 200
EVERYWHERE: Final = "for all integers, whatever the constants"


def prove_rule(rule: Rule) -> RuleVerdict:
    """What can be said of an index rule."""
    if not isinstance(rule.left, Scalar):
        return OpenQuestion("the rule does not speak of index terms")
    if isinstance(rule.right, Scalar):
        return _for_all(rule, rule.left, rule.right)
    return _by_instances(rule)


def equation(rule: Rule) -> tuple[Scalar, Context] | None:
    """The equation and precondition that a rule claims, over its holes; None if it contains a
    function."""
    if not isinstance(rule.left, Scalar) or not isinstance(rule.right, Scalar):
        return None
    if rule.when is not None and not isinstance(rule.when, RuleGuard):
        return None
    context = EMPTY if rule.when is None else EMPTY.where(rule.when.condition)
    return same(rule.left, rule.right), context


def recheck(rule: Rule, verdict: ForAll) -> bool:
    """Whether the certificate of a verdict is valid for the rule."""
    claim = equation(rule)
    if claim is None and isinstance(rule.left, Scalar) and isinstance(rule.right, Scalar):
        claim = same(rule.left, rule.right), EMPTY  # proved whatever the guard says
    return claim is not None and holds(*claim, verdict.certificate)


def certify(rule: Rule, filling: dict[str, Any], context: Context = EMPTY) -> bool:
    """Whether the rule, with its holes filled so, is proved to keep the value in the context.

    Remembered by content: one proof serves every later use of the same instance.
    """
    before = plan(rule.left)(filling)
    if (after := _right_side(rule, filling, context)) is None:
        return False
    claim = same(before, after)
    key = digest(claim) + digest(context)
    if (known := _certified.get(key)) is None:
        if len(_certified) > MAX_CERTIFIED:
            _certified.clear()
        known = _certified[key] = isinstance(decide(claim, context), Holds)
    return known


_certified: Final[dict[str, bool]] = {}
MAX_CERTIFIED: Final = 100_000


def _for_all(rule: Rule, left: Scalar, right: Scalar) -> RuleVerdict:
    for alternative in alternatives(left):
        if alternative is not left:
            return OpenQuestion("a rule of index terms has one left side")
    answer = decide(*(equation(rule) or (same(left, right), EMPTY)))
    match answer:
        case Holds(certificate):
            return ForAll(EVERYWHERE, certificate)
        case _ if any(map(_declines_unknowns, _holes(left))):
            return _by_instances(rule)
        case Fails() if any(_is_picky(each) and each.constraint.constant for each in _holes(left)):
            return _in_window(rule, left, right, "a predicate is a function")
        case Fails() if rule.when is not None and not isinstance(rule.when, RuleGuard):
            return _in_window(rule, left, right, "the guard is a function")
        case Fails(point):
            return WrongRule(tuple(sorted((_name(hole), value) for hole, value in point)))
        case Undecided(why):
            return _in_window(rule, left, right, why)


def _in_window(rule: Rule, left: Scalar, right: Scalar, why: str) -> RuleVerdict:
    """Each instance with constants in the window, the other holes being unknowns."""
    if not (constants := [hole for hole in _holes(left) if hole.constraint.constant]):
        return OpenQuestion(why)
    count = 0
    options = [_numbers(hole) for hole in constants]
    if prod(map(len, options)) > MAX_IN_WINDOW:
        return OpenQuestion(f"{why}, and {len(constants)} constants have too many values to try")
    tried: list[int] = []
    for numbers in itertools.product(*options):
        filling: dict[str, Any] = _unknowns(left)
        for hole, each in zip(constants, numbers, strict=True):
            filling[hole.name] = Lit(bool(each), bool_) if hole.dtype is bool_ else literal(each)
        inside = EMPTY
        if isinstance(rule.when, RuleGuard):
            inside = EMPTY.where(plan(rule.when.condition)(filling))
        elif rule.when is not None and not rule.when(PatternMatch(filling)):
            continue
        answer = decide(same(plan(left)(filling), plan(right)(filling)), inside)
        if isinstance(answer, Fails):
            values = {hole.name: number for hole, number in zip(constants, numbers, strict=True)}
            values |= {_name(hole): value for hole, value in answer.point}
            return WrongRule(tuple(sorted(values.items())))
        if isinstance(answer, Undecided):
            return OpenQuestion(f"with constants {numbers}: {answer.why}")
        count += 1
        tried.extend(numbers)
    if not count:
        return OpenQuestion("the guard or a predicate allows no instance")
    if not any(map(_is_picky, constants)):
        return InWindow(*WINDOW, count)
    return InWindow(min(tried), max(tried), count)


def _numbers(hole: IndexHole) -> list[int]:
    """The numbers of the window that fill a constant hole; if none does, the nearest that do."""
    low, high = WINDOW
    when = hole.constraint.when
    if hole.dtype is bool_:
        return [n for n in (0, 1) if when is None or when(Lit(bool(n), bool_))]
    inside = range(low, high + 1)
    if when is None:
        return list(inside)
    found = [n for n in inside if when(literal(n))]
    far = sorted(range(-MAX_DISTANCE_OF_SAMPLES, MAX_DISTANCE_OF_SAMPLES + 1), key=abs)
    return found or [n for n in far if when(literal(n))][: len(inside)]


def _is_picky(hole: IndexHole) -> bool:
    return hole.constraint.when is not None


def _declines_unknowns(hole: IndexHole) -> bool:
    """Whether a predicate does not take a plain variable, which may have any value."""
    when = hole.constraint.when
    if when is None or hole.constraint.constant:
        return False
    return not when(ScalarVar(Name(hole.name), hole.dtype))


def _by_instances(rule: Rule) -> RuleVerdict:
    count = undecided = 0
    for filling, context in itertools.islice(_instances(rule.left), MAX_INSTANCES):
        before = plan(rule.left)(filling)
        after = _right_side(rule, filling, context)
        if after is None or after is before:
            continue
        if isinstance(answer := decide(same(before, after), context), Fails):
            return _wrong(filling, before, after, answer)
        count += isinstance(answer, Holds)
        undecided += isinstance(answer, Undecided)
    if not count:
        return OpenQuestion("no instance was found that the rule changes")
    return ByInstance(count, undecided)


def _wrong(filling: dict[str, Any], before: Scalar, after: Scalar, found: Fails) -> WrongRule:
    """Where the sides differ, in the names of the rule: each hole with its value there."""
    at = dict(found.point)
    at |= {atom: 0 for atom in atoms(before, after, *filling.values()) if atom not in at}
    point = sorted((name, value(each, at)) for name, each in filling.items())
    variables = tuple((atom, at[atom]) for atom in atoms(before, after))
    return WrongRule(tuple(point), (before, after, variables))


def _right_side(rule: Rule, filling: dict[str, Any], context: Context) -> Scalar | None:
    known = knowledge(context)
    if isinstance(rule.when, RuleGuard):
        if not rule.when.holds(filling, known):
            return None
    elif rule.when is not None and not rule.when(PatternMatch(filling)):
        return None
    if isinstance(rule.right, ContextualRewrite):
        return rule.right.run(PatternMatch(filling), known)
    after = rule.right(PatternMatch(filling)) if rule.build is None else rule.build(filling)  # type: ignore[operator]  # no plan: a function
    return after if isinstance(after, Scalar) else None


def _instances(left: Term) -> Iterator[tuple[dict[str, Any], Context]]:
    """Fillings of a left side, from a fixed pool of small terms, in a few contexts."""
    i, j = (ScalarVar(Name(name), i64) for name in "ij")
    nest = EMPTY.loop(i, 8).loop(j, 4)
    contexts = (EMPTY, nest, EMPTY.within(i, -5, 6).within(j, 0, 11))
    pool: list[Scalar] = [
        i, j, i * 4 + j, i * 8 + j + 3, i - j * 2, i * 6 - 4, literal(0) - i,
        FloorDiv(i, literal(4)), FloorMod(i, literal(8)), FloorMod(i * 2 + j, literal(6)),
        FloorDiv(i * 4 + j, literal(4)) * 4, FloorMod(i * 4 + j, literal(4)),
        FloorDiv(FloorMod(i, literal(12)), literal(3)), Min(i, j), Select(i < j, i, j * 2),
    ]  # fmt: skip
    numbers = [literal(n) for n in (1, 2, 3, 4, 8, 12, 0, -1, -4)]
    holes = _holes(left)
    options: list[list[Scalar]] = []
    for hole in holes:
        if hole.dtype is bool_:
            options.append([i < j, ScalarVar(Name(hole.name), bool_)])
        elif hole.constraint.constant:
            options.append(numbers if hole.constraint.when is None else _literals(hole))
        else:
            options.append([*pool, *numbers])
    allowed = [
        [scalar for scalar in terms if hole.constraint.when is None or hole.constraint.when(scalar)]
        for hole, terms in zip(holes, options, strict=True)
    ]
    source = random.Random(0)
    while all(allowed):
        filling = {h.name: source.choice(terms) for h, terms in zip(holes, allowed, strict=True)}
        yield filling, source.choice(contexts)


def _literals(hole: IndexHole) -> list[Scalar]:
    return [literal(n) for n in _numbers(hole)]


def _unknowns(left: Term) -> dict[str, Any]:
    return {hole.name: ScalarVar(Name(hole.name), hole.dtype) for hole in _holes(left)}


def _holes(pattern: Term) -> list[IndexHole]:
    return all_of(IndexHole, pattern)


def _name(of: Scalar) -> str:
    return str(of.name) if isinstance(of, IndexHole | ScalarVar) else repr(dtype_of(of))
