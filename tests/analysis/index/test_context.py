"""Contexts: values, with what they say as conditions."""

from __future__ import annotations

from hypothesis import given

from plica.analysis.index import EMPTY
from plica.analysis.index.context import FALSE, MOST_FACTS, TRUE, conjuncts, negated
from plica.analysis.index.knowledge import knowledge
from plica.ir.loop.scalar import And, Lit, Lt, Not, Or, Scalar
from plica.ir.loop.tensor import buffer
from plica.ir.type.dtype import bool_, f32
from tests.analysis.index.box import X, Y, conditions, points, value


@given(conditions(3))
def test_negation(condition: Scalar) -> None:
    for point in points(EMPTY, size=1):
        assert value(negated(condition), point) == 1 - value(condition, point)
        both = all(value(each, point) for each in conjuncts(condition))
        assert both == bool(value(condition, point))


def test_the_contrary_of_a_comparison_of_floats_stays_a_condition() -> None:
    """It cannot be said without `not`, for nan is neither below nor above; it was lost once."""
    above, below = Lt(buffer("a", (), f32)[()], buffer("b", (), f32)[()]), X < Y
    assert conjuncts(Not(above)) == (Not(above),)
    assert conjuncts(Not(Or(above, below))) == (Not(above), Y <= X)
    assert conjuncts(And(below, Not(Or(above, above)))) == (below, Not(above))


def test_contexts_are_values() -> None:
    assert EMPTY.loop(X, 4).where(X < Y) is EMPTY.loop(X, 4).where(X < Y)
    assert EMPTY.where(TRUE) is EMPTY
    assert EMPTY.where(And(X < Y, Y < X)).facts == (X < Y, Y < X)
    assert EMPTY.within(X, 1, 3) is EMPTY.loop(X, 3, 1) or EMPTY.within(X, 1, 3).ranges


def test_an_inner_loop_hides_an_outer_variable() -> None:
    outer = EMPTY.loop(X, 4).loop(Y, X).where(X < Y)
    inner = outer.loop(X, 9)
    assert [each.var for each in inner.ranges] == [X]
    assert inner.facts == ()


def test_impossible() -> None:
    assert knowledge(EMPTY.loop(X, 0)).impossible
    assert knowledge(EMPTY.where(FALSE)).impossible
    assert knowledge(EMPTY.loop(X, 4).where(Lit(5, X.dtype) < X)).impossible
    assert not knowledge(EMPTY.loop(X, 4)).impossible


def test_facts_are_bounded() -> None:
    context = EMPTY
    for number in range(100):
        context = context.where(Y + number > X)
    assert len(context.facts) == MOST_FACTS


def test_negation_of_deep_conditions() -> None:
    deep: Scalar = Lt(X, Y)
    for _ in range(5_000):
        deep = Not(deep)
    assert negated(deep) in (X < Y, Y <= X)
    for _ in range(5_000):
        deep = Or(And(deep, Lit(True, bool_)), X < Y)
    assert negated(negated(deep)) is not None
