"""Guards: the condition under which an index rule holds, as a term over its holes.

>>> from plica.ir.loop.scalar import Lt, index
>>> from plica.analysis.index.context import EMPTY
>>> from plica.rewrite.pattern import index_holes
>>> from plica.ir.type.dim import dim_var
>>> x, y = index_holes("x y")
>>> i = dim_var("i")
>>> small = given(Lt(x, y))
>>> small.holds({"x": i, "y": index(8)}, knowledge(EMPTY.loop(i, 8)))
True

Since a guard is a term, it is decided in a context when a rule is used, and taken as given when the
rule is proved.  `ContextualRewrite` is a right side that computes its term from the match and what
is known in the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from plica.analysis.index.bounds import knowledge
from plica.analysis.index.context import EMPTY, TRUE
from plica.analysis.index.implication import is_implied, is_non_negative, is_nonzero
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.point import value
from plica.analysis.index.polynomial import Polynomial, number, polynomial
from plica.core import Term, post_order
from plica.ir.loop.scalar import And, Le, Like, Lit, Lt, Ne, Scalar, dtype_of, index
from plica.ir.type import i64
from plica.rewrite.instantiate import plan
from plica.rewrite.match import PatternMatch

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
    """A right side computed from the match and what is known; alone, in the empty context."""

    run: Callable[[PatternMatch, Knowledge], Scalar | None]

    def __call__(self, match: PatternMatch) -> Scalar | None:
        return self.run(match, knowledge(EMPTY))


def given(*conditions: Scalar) -> RuleGuard:
    """The guard that all of these hold."""
    whole: Scalar = TRUE
    for condition in conditions:
        whole = condition if whole is TRUE else And(whole, condition)
    return RuleGuard(whole, tuple(_test(condition) for condition in conditions))


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
