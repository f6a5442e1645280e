"""The rules of index arithmetic, in tables of one line each.

    SUMS          sums of products in canonical form                      (computed)
    DIVISIONS     quotients and remainders
    EXTREMES      minimum and maximum
    COMPARISONS   equalities and inequalities
    LOGIC         and, or, not, select

Measure: every rule decreases, in this lexicographic order: the number of quotients and remainders
nested in quotients and remainders; the number of quotients, remainders, minima, maxima, comparisons
and selects; the sum of the sizes of divisors; the number of terms not in canonical form. The
simplifier also has fuel, and names the looping rules when it runs out.

A guard is a condition over the holes, decided in the context. Rules whose right side is a term are
proved for all integers and constants; computed right sides are certified per instance
(`plica.analysis.index.verdict`).

Guards: the precondition of an index rule, as a term over its holes.

>>> from plica.ir.loop.scalar import Lt, index
>>> from plica.analysis.index.context import EMPTY
>>> from plica.rewrite.pattern import index_holes
>>> from plica.ir.type.dim import dim_var
>>> x, y = index_holes("x y")
>>> i = dim_var("i")
>>> small = given(Lt(x, y))
>>> small.holds({"x": i, "y": index(8)}, knowledge(EMPTY.loop(i, 8)))
True

Because a guard is a term, it is decided in a context when a rule is applied, and assumed when the
rule is proved. `ContextualRewrite` is a right side computed from the match and the context.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, Final, TypeAlias

import attrs

from plica.analysis.index.bounds import knowledge, of_polynomial
from plica.analysis.index.canonical import divided_by, gathered, quotient, remainder, term_of
from plica.analysis.index.context import EMPTY, FALSE, TRUE, conjunction
from plica.analysis.index.implication import is_implied, is_non_negative, is_nonzero
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.modular import residue_of_polynomial
from plica.analysis.index.point import value
from plica.analysis.index.polynomial import Polynomial, number, polynomial
from plica.core import Term, post_order
from plica.ir.loop import Select
from plica.ir.loop.scalar import (
    Add,
    And,
    Eq,
    Le,
    Like,
    Lit,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Scalar,
    Sub,
    dtype_of,
    index,
)
from plica.ir.type import bool_, i64
from plica.rewrite.instantiate import plan
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pattern import ANYTHING, Constraint, IndexHole, index_constants, index_holes
from plica.rewrite.rule import Rule

__all__ = ["COMPARISONS", "DIVISIONS", "EXTREMES", "INDEX_RULES", "LOGIC", "SUMS"]


Filling: TypeAlias = dict[str, Any]  # Any: what fills a hole, here always a scalar
Test: TypeAlias = Callable[[Filling, Knowledge], bool]


@attrs.frozen(eq=False)
class RuleGuard:
    """A condition over holes; as a plain guard it is decided in the empty context."""

    condition: Scalar
    tests: tuple[Test, ...] = attrs.field(repr=False)

    def __call__(self, match: PatternMatch) -> bool:
        return self.holds(match.filling, knowledge(EMPTY))

    def holds(self, filling: Filling, known: Knowledge) -> bool:
        """Whether the condition is shown to hold for what fills the holes."""
        return all(test(filling, known) for test in self.tests)


@attrs.frozen(eq=False)
class ContextualRewrite:
    """A right side computed from the match and the context; standalone, in the empty context."""

    run: Callable[[PatternMatch, Knowledge], Scalar | None]

    def __call__(self, match: PatternMatch) -> Scalar | None:
        return self.run(match, knowledge(EMPTY))


def given(*conditions: Scalar) -> RuleGuard:
    """The guard that all of these hold."""
    return RuleGuard(conjunction(conditions), tuple(_test(condition) for condition in conditions))


def nonzero(of: Any) -> Scalar:
    """`of != 0`."""
    return Ne(of, index(0))


def positive(of: Any) -> Scalar:
    """`of > 0`."""
    return Lt(index(0), of)


def between(low: Like, of: Any, high: Like) -> tuple[Scalar, Scalar]:
    """`low <= of < high`."""
    return Le(index(low), of), Lt(of, index(high))


def _test(condition: Scalar) -> Test:
    """A guard made ready: comparisons of sums of holes need no term to be built."""
    if isinstance(condition, Lt | Le | Ne) and dtype_of(condition.left) is i64:
        a, b = condition.left, condition.right
        strict = isinstance(condition, Lt)
        difference = polynomial(b).plus(polynomial(a), -1).shifted(-1 if strict else 0)
        if all(type(key).hole for key in difference.terms if isinstance(key, Term)) and all(
            isinstance(key, Term) for key in difference.terms
        ):
            parts = tuple((key.name, c) for key, c in difference.terms.items())  # type: ignore[union-attr]  # the class was just seen
            decide = is_nonzero if isinstance(condition, Ne) else is_non_negative
            return _linear(parts, difference.constant, decide)
    return _general(condition)


def _linear(
    parts: tuple[tuple[str, int], ...],
    constant: int,
    decide: Callable[[Polynomial, Knowledge], bool],
) -> Test:
    def test(filling: Filling, known: Knowledge) -> bool:
        if known.impossible:
            return True
        total = number(constant)
        for name, coefficient in parts:
            total = total.plus(known.polynomial(filling[name]), coefficient)
        return decide(total, known)

    return test


def _general(condition: Scalar) -> Test:
    """Any condition: by its value where the holes hold numbers, by proof otherwise."""
    names = {node.name: node for node in post_order(condition) if type(node).hole}  # type: ignore[attr-defined]  # every variable and hole has a name
    build = plan(condition)

    def test(filling: Filling, known: Knowledge) -> bool:
        if all(isinstance(filling[name], Lit) for name in names):
            point = {hole: int(filling[name].value) for name, hole in names.items()}
            return bool(value(condition, point))  # type: ignore[arg-type]  # holes are scalars
        return is_implied(build(filling), known)

    return test


x, y, z = index_holes("x y z")
n = IndexHole("n", Constraint(when=lambda value: not isinstance(value, Lit)))
c, d = index_constants("c d")
p, q, r = (IndexHole(name, ANYTHING, bool_) for name in "pqr")
zero, one = index(0), index(1)


def _canonical(of: Polynomial | None, known: Knowledge) -> Scalar | None:
    whole = None if of is None else gathered(of, known)
    return None if whole is None else term_of(whole, known)


def _sum(make: Callable[[Scalar, Scalar], Scalar]) -> ContextualRewrite:
    return ContextualRewrite(lambda m, known: _canonical(known.polynomial(make(m.x, m.y)), known))


def _divided(*, whole: bool) -> ContextualRewrite:
    """The quotient, if `whole`, or the remainder."""
    part = quotient if whole else remainder

    def run(m: PatternMatch, known: Knowledge) -> Scalar | None:
        value, divisor = known.polynomial(m.x), known.polynomial(m.y)
        if divisor.terms:
            return _canonical(divided_by(value, divisor, known, whole=whole), known)
        return _canonical(part(value, divisor.constant, known), known)

    return ContextualRewrite(run)


def _extreme(make: Callable[[Scalar, Scalar], Scalar]) -> ContextualRewrite:
    """Extracts the common factor and offset: `min(4*x + 4, 4*y + 4)` is `4*min(x, y) + 4`."""

    def run(m: PatternMatch, known: Knowledge) -> Scalar | None:
        a, b = known.polynomial(m.x), known.polynomial(m.y)
        if not a.terms and not b.terms:
            pick = min if make is Min else max
            return index(pick(a.constant, b.constant))
        common = {k: v for k, v in a.terms.items() if b.terms.get(k) == v}
        constant = min(a.constant, b.constant) if a.terms and b.terms else 0
        out = Polynomial(constant, common)
        a, b = a.plus(out, -1), b.plus(out, -1)
        size = gcd(a.content(), b.content(), a.constant, b.constant)
        if size > 1:
            a, b = a.exactly_divided(size), b.exactly_divided(size)
        elif not common and not constant:
            return None
        left, right = term_of(a, known), term_of(b, known)
        if left is None or right is None:
            return None
        inner = make(left, right) if not isinstance(left, Lit) else make(right, left)
        return _canonical(out.plus(Polynomial(0, {inner: 1}), max(size, 1)), known)

    return ContextualRewrite(run)


def _compared(strict: bool) -> ContextualRewrite:
    """`a < b` with positive terms on both sides, divided by their gcd."""

    def run(m: PatternMatch, known: Knowledge) -> Scalar | None:
        # non-negative where the comparison holds
        of = known.polynomial(m.y).plus(known.polynomial(m.x), -1).shifted(-1 if strict else 0)
        if not of.terms:
            return TRUE if of.constant >= 0 else FALSE
        if is_non_negative(of, known):
            return TRUE
        if is_non_negative(of.scaled(-1).shifted(-1), known):
            return FALSE
        size = of.content()
        # g*t + k >= 0  is  t >= -floor(k / g)  is  -1 - floor(k / g) < t
        of = Polynomial(of.constant // size + 1, {k: v // size for k, v in of.terms.items()})
        high = Polynomial(max(of.constant, 0), {k: v for k, v in of.terms.items() if v > 0})
        low = Polynomial(max(-of.constant, 0), {k: -v for k, v in of.terms.items() if v < 0})
        left, right = term_of(low, known), term_of(high, known)
        return None if left is None or right is None else Lt(left, right)

    return ContextualRewrite(run)


def _equal(
    same: Scalar, other: Scalar, make: Callable[[Scalar, Scalar], Scalar]
) -> ContextualRewrite:
    """`a == b` with positive terms on both sides, divided by their gcd."""

    def run(m: PatternMatch, known: Knowledge) -> Scalar | None:
        of = known.polynomial(m.x).plus(known.polynomial(m.y), -1)
        if not of.terms:
            return same if of.constant == 0 else other
        size = of.content()
        if of.constant % size or is_nonzero(of, known):
            return other
        if of_polynomial(of, known) == (0, 0) or (
            is_non_negative(of, known) and is_non_negative(of.scaled(-1), known)
        ):
            return same
        of = of.exactly_divided(size)
        step, base = residue_of_polynomial(of, known)
        if 0 not in (step, base) and step and base % step:
            return other
        lead = next(iter(of.terms.values()))
        of = of if lead > 0 else of.scaled(-1)
        high = Polynomial(max(of.constant, 0), {k: v for k, v in of.terms.items() if v > 0})
        low = Polynomial(max(-of.constant, 0), {k: -v for k, v in of.terms.items() if v < 0})
        left, right = term_of(high, known), term_of(low, known)
        return None if left is None or right is None else make(left, right)

    return ContextualRewrite(run)


# fmt: off
SUMS: Final = (
    rule("canonical-add",        x + y,                _sum(Add)),
    rule("canonical-subtract",   x - y,                _sum(Sub)),
    rule("canonical-multiply",   x * y,                _sum(Mul)),
)
DIVISIONS: Final = (
    rule("canonical-divide",     x // y,               _divided(whole=True)),
    rule("canonical-mod",        x % y,                _divided(whole=False)),
    rule("div-zero",             x // zero,            zero),
    rule("zero-div",             zero // x,            zero),
    rule("div-one",              x // one,             x),
    rule("div-self",             x // x,               one, when=given(nonzero(x))),
    rule("div-negative",         x // c,               (0 - x) // (0 - c), when=given(Lt(c, zero))),
    rule("div-small",            x // n,               zero, when=given(*between(0, x, n))),
    rule("div-small-negative",   x // n, index(-1), when=given(Le(0 - n, x), Lt(x, zero))),
    rule("mul-div",              (x * y) // y,         x, when=given(nonzero(y))),
    rule("mul-div-left",         (y * x) // y,         x, when=given(nonzero(y))),
    rule("div-div",              (x // c) // d, x // (c * d), when=given(positive(c), positive(d))),
    rule("mod-div", (x % c) // d, (x // d) % (c // d),
         when=given(positive(c), positive(d), Eq(c % d, zero))),
    rule("mod-zero",             x % zero,             zero),
    rule("zero-mod",             zero % x,             zero),
    rule("mod-one",              x % one,              zero),
    rule("mod-self",             x % x,                zero),
    rule("mod-negative",         x % c, 0 - (0 - x) % (0 - c), when=given(Lt(c, zero))),
    rule("mod-small",            x % n,                x, when=given(*between(0, x, n))),
    rule("mod-small-negative",   x % n, x + n, when=given(Le(0 - n, x), Lt(x, zero))),
    rule("mul-mod",              (x * y) % y,          zero),
    rule("mul-mod-left",         (y * x) % y,          zero),
    rule("mod-mod",              (x % c) % d, x % d, when=given(Eq(c % d, zero), nonzero(c))),
)
EXTREMES: Final = (
    rule("min-left",             Min(x, y),            x,                    when=given(Le(x, y))),
    rule("min-right",            Min(x, y),            y,                    when=given(Le(y, x))),
    rule("max-left",             Max(x, y),            x,                    when=given(Le(y, x))),
    rule("max-right",            Max(x, y),            y,                    when=given(Le(x, y))),
    rule("min-literal-last",     Min(c, Min(x, d)),    Min(x, Min(c, d))),
    rule("max-literal-last",     Max(c, Max(x, d)),    Max(x, Max(c, d))),
    rule("min-min",              Min(Min(x, c), d),    Min(x, Min(c, d))),
    rule("max-max",              Max(Max(x, c), d),    Max(x, Max(c, d))),
    rule("min-min-left",         Min(Min(x, y), x),    Min(x, y)),
    rule("min-min-right",        Min(Min(x, y), y),    Min(x, y)),
    rule("min-into-min-left",    Min(x, Min(x, y)),    Min(x, y)),
    rule("min-into-min-right",   Min(y, Min(x, y)),    Min(x, y)),
    rule("max-max-left",         Max(Max(x, y), x),    Max(x, y)),
    rule("max-max-right",        Max(Max(x, y), y),    Max(x, y)),
    rule("max-into-max-left",    Max(x, Max(x, y)),    Max(x, y)),
    rule("max-into-max-right",   Max(y, Max(x, y)),    Max(x, y)),
    rule("min-max-left",         Min(Max(x, y), x),    x),
    rule("min-max-right",        Min(Max(x, y), y),    y),
    rule("min-into-max-left",    Min(x, Max(x, y)),    x),
    rule("min-into-max-right",   Min(y, Max(x, y)),    y),
    rule("max-min-left",         Max(Min(x, y), x),    x),
    rule("max-min-right",        Max(Min(x, y), y),    y),
    rule("max-into-min-left",    Max(x, Min(x, y)),    x),
    rule("max-into-min-right",   Max(y, Min(x, y)),    y),
    rule("min-of-quotients",     Min(x // c, y // c),  Min(x, y) // c, when=given(positive(c))),
    rule("max-of-quotients",     Max(x // c, y // c),  Max(x, y) // c, when=given(positive(c))),
    rule("min-of-multiples",     Min(c * x, c * y),    c * Min(x, y), when=given(positive(c))),
    rule("max-of-multiples",     Max(c * x, c * y),    c * Max(x, y), when=given(positive(c))),
    rule("min-of-negatives",     Min(c * x, c * y),    c * Max(x, y), when=given(Lt(c, zero))),
    rule("max-of-negatives",     Max(c * x, c * y),    c * Min(x, y), when=given(Lt(c, zero))),
    rule("min-literal-right",    Min(c, n),            Min(n, c)),
    rule("max-literal-right",    Max(c, n),            Max(n, c)),
    rule("canonical-min",        Min(x, y),            _extreme(Min)),
    rule("canonical-max",        Max(x, y),            _extreme(Max)),
)
COMPARISONS: Final = (
    rule("canonical-less",       Lt(x, y),             _compared(strict=True)),
    rule("canonical-at-most",    Le(x, y),             _compared(strict=False)),
    rule("canonical-equal",      Eq(x, y),             _equal(TRUE, FALSE, Eq)),
    rule("canonical-unequal",    Ne(x, y),             _equal(FALSE, TRUE, Ne)),
    rule("less-than-min",        Lt(z, Min(x, y)),     And(Lt(z, x), Lt(z, y))),
    rule("min-less-than",        Lt(Min(x, y), z),     Or(Lt(x, z), Lt(y, z))),
    rule("less-than-max",        Lt(z, Max(x, y)),     Or(Lt(z, x), Lt(z, y))),
    rule("max-less-than",        Lt(Max(x, y), z),     And(Lt(x, z), Lt(y, z))),
    rule("quotient-below",       Lt(x // c, d),        Lt(x, c * d), when=given(positive(c))),
    rule("quotient-above",       Lt(d, x // c), Lt(c * d + c - 1, x), when=given(positive(c))),
)
LOGIC: Final = (
    rule("true-and",             And(TRUE, p),         p),
    rule("and-true",             And(p, TRUE),         p),
    rule("false-and",            And(FALSE, p),        FALSE),
    rule("and-false",            And(p, FALSE),        FALSE),
    rule("and-same",             And(p, p),            p),
    rule("and-not",              And(p, Not(p)),       FALSE),
    rule("not-and",              And(Not(p), p),       FALSE),
    rule("and-or-left",          And(p, Or(p, q)),     p),
    rule("and-or-right",         And(p, Or(q, p)),     p),
    rule("and-and",              And(And(p, q), r),    And(p, And(q, r))),
    rule("true-or",              Or(TRUE, p),          TRUE),
    rule("or-true",              Or(p, TRUE),          TRUE),
    rule("false-or",             Or(FALSE, p),         p),
    rule("or-false",             Or(p, FALSE),         p),
    rule("or-same",              Or(p, p),             p),
    rule("or-not",               Or(p, Not(p)),        TRUE),
    rule("not-or",               Or(Not(p), p),        TRUE),
    rule("or-and-left",          Or(p, And(p, q)),     p),
    rule("or-and-right",         Or(p, And(q, p)),     p),
    rule("or-or",                Or(Or(p, q), r),      Or(p, Or(q, r))),
    rule("not-true",             Not(TRUE),            FALSE),
    rule("not-false",            Not(FALSE),           TRUE),
    rule("not-not",              Not(Not(p)),          p),
    rule("not-less",             Not(Lt(x, y)),        Le(y, x)),
    rule("not-at-most",          Not(Le(x, y)),        Lt(y, x)),
    rule("not-equal",            Not(Eq(x, y)),        Ne(x, y)),
    rule("not-unequal",          Not(Ne(x, y)),        Eq(x, y)),
    rule("not-of-and",           Not(And(p, q)),       Or(Not(p), Not(q))),
    rule("not-of-or",            Not(Or(p, q)),        And(Not(p), Not(q))),
    rule("select-true",          Select(TRUE, x, y),   x),
    rule("select-false",         Select(FALSE, x, y),  y),
    rule("select-same",          Select(p, x, x),      x),
    rule("select-not",           Select(Not(p), x, y), Select(p, y, x)),
)
# fmt: on

INDEX_RULES: Final[tuple[Rule, ...]] = SUMS + DIVISIONS + EXTREMES + COMPARISONS + LOGIC
