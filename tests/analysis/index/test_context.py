"""Contexts: values, with what they say as conditions."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.index import EMPTY, simplify
from plica.analysis.index.bounds import knowledge
from plica.analysis.index.context import FALSE, MAX_FACTS, TRUE, conjuncts, negated
from plica.ir.loop.scalar import And, Lit, Lt, Not, Or, Scalar
from plica.ir.loop.tensor import buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import bool_, f32
from tests.analysis.index.box import X, Y, Z, conditions, points, terms, value


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


@given(terms(), conditions(1), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_what_does_not_concern_a_term_is_left_out(
    term: Scalar, fact: Scalar, sizes: list[int]
) -> None:
    context = EMPTY
    for var, size in zip((X, Y, Z), sizes, strict=True):
        context = context.loop(var, size)
    context = context.where(fact)
    about = context.concerning(term)
    assert knowledge(about).impossible or not knowledge(context).impossible
    assert about.facts == context.facts
    assert simplify(term, about) is simplify(term, context)


def test_loops_that_may_not_run_and_what_they_depend_on_stay() -> None:
    n = dim_var("n")
    inside = EMPTY.loop(X, 4).loop(Y, n).loop(Z, 8)
    assert [each.var for each in inside.concerning(Z * 2).ranges] == [Y, Z]
    assert [each.var for each in EMPTY.loop(X, 4).loop(Y, X).concerning(Y).ranges] == [X, Y]
    assert EMPTY.loop(X, 0).loop(Y, 2).concerning(Y).ranges == EMPTY.loop(X, 0).loop(Y, 2).ranges
    guarded = EMPTY.loop(X, 4).loop(Y, 2).where(X < 3)
    assert guarded.concerning(Y) is guarded


def test_impossible() -> None:
    assert knowledge(EMPTY.loop(X, 0)).impossible
    assert knowledge(EMPTY.where(FALSE)).impossible
    assert knowledge(EMPTY.loop(X, 4).where(Lit(5, X.dtype) < X)).impossible
    assert not knowledge(EMPTY.loop(X, 4)).impossible


def test_facts_are_bounded() -> None:
    context = EMPTY
    for number in range(100):
        context = context.where(Y + number > X)
    assert len(context.facts) == MAX_FACTS


def test_negation_of_deep_conditions() -> None:
    deep: Scalar = Lt(X, Y)
    for _ in range(5_000):
        deep = Not(deep)
    assert negated(deep) in (X < Y, Y <= X)
    for _ in range(5_000):
        deep = Or(And(deep, Lit(True, bool_)), X < Y)
    assert negated(negated(deep)) is not None
