"""Conjunctive normal form by truth tables; narrowed predicates by trying all values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from plica.analysis.index.normal_form import FALSE, conjunctive, narrowed
from plica.analysis.index.point import values
from plica.core import free_vars
from plica.ir.loop.scalar import And, Eq, Le, Lt, Not, Or, Scalar, index
from plica.ir.loop.statement import TRUE
from plica.ir.loop.tensor import axis
from plica.runtime.port import Array

SOME = settings(max_examples=max(20, settings().max_examples // 4))
i, j, k = axis("i"), axis("j"), axis("k")
numbers = st.integers(-3, 3)
linear = st.builds(lambda a, b, c, d: i * a + j * b + k * c + d, numbers, numbers, numbers, numbers)
comparisons: st.SearchStrategy[Scalar] = st.one_of(
    st.builds(Lt, linear, linear), st.builds(Le, linear, linear)
)
predicates: st.SearchStrategy[Scalar] = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)
    ),
    max_leaves=5,
)
AT_I, AT_J, AT_K = np.meshgrid([-2, 0, 1], [-1, 0, 3], range(-3, 7), indexing="ij")


def table(of: Scalar) -> Array:
    """The truth of a predicate at all places; the last axis is that of k."""
    found = values(of, {i: AT_I.ravel(), j: AT_J.ravel(), k: AT_K.ravel()})
    return np.broadcast_to(np.asarray(found, bool), AT_I.size).reshape(AT_I.shape)


@SOME
@given(predicates)
def test_the_clauses_have_the_truth_table_of_the_predicate(predicate: Scalar) -> None:
    clauses = conjunctive(predicate)
    assert clauses is not None
    held = np.ones(AT_I.shape, bool)
    for clause in clauses:
        assert not any(isinstance(each, And | Or | Not) for each in clause)
        held &= np.any([table(each) for each in clause], axis=0)
    np.testing.assert_array_equal(held, table(predicate))


@SOME
@given(predicates, numbers, st.integers(0, 3))
def test_a_narrowed_predicate_implies_it_everywhere(
    predicate: Scalar, first: int, span: int
) -> None:
    found = narrowed(predicate, {k: (first, first + span)})
    assert found is not None
    assert k not in free_vars(found)
    inside = (first <= AT_K) & (first + span >= AT_K)
    assert np.all(table(predicate) | ~(table(found) & inside))


@SOME
@given(comparisons)
def test_one_comparison_is_narrowed_as_little_as_may_be(predicate: Scalar) -> None:
    found = narrowed(predicate, {k: (-3, 6)})
    assert found is not None
    np.testing.assert_array_equal(table(found)[..., 0], np.all(table(predicate), axis=-1))


def test_what_is_not_linear_is_not_narrowed() -> None:
    assert narrowed(Lt(k * k, index(3)), {k: (0, 2)}) is None
    assert narrowed(Eq(k, i), {k: (0, 2)}) is None


def test_constants_and_too_many_clauses() -> None:
    assert conjunctive(TRUE) == ()
    assert conjunctive(FALSE) == ((),)
    term: Scalar = And(Lt(i, index(0)), Lt(j, index(0)))
    for at in range(1, 14):
        term = Or(term, And(Lt(i, index(at)), Lt(j, index(at))))
    assert conjunctive(term) is None
