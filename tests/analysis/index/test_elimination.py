"""Elimination and combination: a contradiction that is found is one."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.index.deduction import adds_up, contradiction
from plica.analysis.index.elimination import RowSum, contradicted, refute, solutions
from plica.analysis.index.polynomial import polynomial
from plica.ir.loop.scalar import Scalar
from tests.analysis.index.box import Point, X, Y, value

small = st.integers(-3, 3)
rows = st.lists(st.tuples(small, small, small), min_size=1, max_size=5)


def has_solution(system: list[tuple[int, int, int]]) -> bool:
    return any(
        all(a * x + b * y + k >= 0 for a, b, k in system)
        for x, y in itertools.product(range(-12, 13), repeat=2)
    )


@given(rows)
def test_refuted_systems_have_no_solution(system: list[tuple[int, int, int]]) -> None:
    matrix = [(a, b) for a, b, _ in system]
    constants = [np.array([k]) for _, _, k in system]
    found = refute(matrix, constants)
    assert (contradicted(matrix, constants, found.sums) == ~found.open).all()
    if not found.open[0]:
        assert not has_solution(system)
    for chosen in solutions(found, 0):
        x, y = chosen.get(0, 0), chosen.get(1, 0)
        assert all(a * x + b * y + k >= 0 for a, b, k in system) or not found.complete


@given(rows)
def test_combinations_add_up(system: list[tuple[int, int, int]]) -> None:
    polynomials = [polynomial(X * a + Y * b + k) for a, b, k in system]
    found = contradiction(polynomials)
    if found is None:
        return
    assert adds_up(polynomials, found)
    assert not has_solution(system)


def test_combinations_are_checked() -> None:
    pair = [polynomial(X - 3), polynomial(2 - X)]
    assert adds_up(pair, [Fraction(1), Fraction(1)])
    assert not adds_up(pair, [Fraction(1), Fraction(2)])
    assert not adds_up(pair, [Fraction(1)])
    assert not adds_up(pair, [Fraction(-1), Fraction(-1)])


def test_many_systems_at_once() -> None:
    found = refute([(1,), (-1,)], [np.array([0, -5, 2]), np.array([3, 4, -3])])
    assert found.open.tolist() == [True, False, False]


def test_integer_rounding() -> None:
    # 3 <= 2q <= 3 has a rational solution and no integer one
    found = refute([(2,), (-2,)], [np.array([-3]), np.array([3])])
    assert not found.open.any()


def test_only_equal_rows_have_a_stricter_one() -> None:
    with pytest.raises(ValueError, match="equal"):
        contradicted([(1,), (-1,)], [np.array([0]), np.array([0])], [RowSum(0, 0, 1, 0)])


def test_large_numbers_stay_exact() -> None:
    big = 2**61
    found = refute([(1,), (-1,)], [np.array([-big]), np.array([big - 1])])
    assert not found.open.any()


def point(x: int, y: int) -> Point:
    return {X: x, Y: y}


def test_value() -> None:
    term: Scalar = X // 3 - Y % 4
    assert value(term, point(-1, -1)) == -1 - 3
