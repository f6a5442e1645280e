"""Bounds: what is said of an index holds for every value of the loops around it."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

from plica.analysis.constant_bound import KnownBounds, facts_of, interval
from plica.core.term import Term
from plica.ir.loop.scalar import And, Cast, Le, Lit, Lt, Scalar, Select
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import evaluate
from plica.ir.type.dtype import i32, i64
from tests.strategies import index_terms

ROW, COLUMN = axis("i"), axis("j")


@given(index_terms((ROW, COLUMN)), st.integers(1, 4), st.integers(1, 4))
def test_an_interval_holds_every_value(term: Scalar, rows: int, columns: int) -> None:
    low, high = interval(term, {ROW: (0, rows - 1), COLUMN: (0, columns - 1)}, {})
    for i, j in itertools.product(range(rows), range(columns)):
        value = evaluate(term, {ROW: i, COLUMN: j})
        assert value is not None
        assert low <= value <= high


def follows(term: Scalar, condition: Scalar) -> bool:
    here = KnownBounds()
    here.facts += facts_of(condition)
    return here.is_natural(term)


@given(index_terms((ROW, COLUMN), depth=2), index_terms((ROW, COLUMN), depth=2), st.integers(-3, 3))
def test_what_is_implied_holds_where_the_fact_does(a: Scalar, b: Scalar, more: int) -> None:
    condition, term = Le(a, b), b - a + more
    if follows(term, condition):
        for i, j in itertools.product(range(-2, 3), repeat=2):
            sizes: dict[Term, int] = {ROW: i, COLUMN: j}
            left, right, value = (evaluate(each, sizes) for each in (a, b, term))
            assert left is not None
            assert right is not None
            assert value is not None
            assert left > right or value >= 0


def test_guards_prove_padding() -> None:
    place = ROW + COLUMN - 1
    guard = And(Le(Lit(0, i64), place), Lt(place, Lit(5, i64)))
    assert follows(COLUMN + ROW - 1, guard)
    assert follows(Lit(4, i64) - place, guard)
    assert not follows(Lit(3, i64) - place, guard)


def test_a_loaded_index_may_be_anything_its_dtype_holds() -> None:
    x = buffer("x", (4,), i32)
    assert interval(Cast(x[ROW], i64), {ROW: (0, 3)}, {}) == i32.bounds


def test_both_sides_of_a_select_count() -> None:
    chosen = Select(Lt(ROW, Lit(2, i64)), ROW, ROW - 10)
    assert interval(chosen, {ROW: (0, 3)}, {}) == (-10, 3)


def test_overflow_is_no_knowledge() -> None:
    huge = Lit(2**62, i64)
    assert interval(huge * ROW, {ROW: (0, 9)}, {}) == i64.bounds


def test_deep_terms() -> None:
    term: Scalar = ROW
    for _ in range(5_000):
        term = term + 1
    assert interval(term, {ROW: (0, 1)}, {}) == (5_000, 5_001)
