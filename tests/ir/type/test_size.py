"""Dims found from numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.scalar import FloorDiv, Lit, Scalar
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.size import shape_of, size_of, solve, type_equations
from plica.ir.type.term import FuncType, TupleType, tensor

n, m = dim_var("n"), dim_var("m")
naturals = st.integers(0, 50)


@given(naturals, naturals, st.permutations(range(3)))
def test_linear_equations_are_solved_in_any_order(a: int, b: int, order: list[int]) -> None:
    equations = [(n, a), (dim(3 * n + 2 * m + 1), 3 * a + 2 * b + 1), (dim(n * m), a * b)]
    found = solve([equations[i] for i in order])
    assert (found[n], found[m]) == (a, b)


@given(naturals)
def test_a_quotient_decides_nothing_but_can_be_evaluated(a: int) -> None:
    half = FloorDiv(n, Lit(2, n.dtype))
    assert n not in solve([(half, a)])
    assert size_of(half, solve([(n, a)])) == a // 2


def test_the_first_equation_decides() -> None:
    assert solve([(n, 2), (n, 3)])[n] == 2


@pytest.mark.parametrize(
    ("what", "number"), [(dim(2 * n), 3), (dim(n + 5), 3), (dim(n * m), 6), (dim(n - n), 3)]
)
def test_what_has_no_single_whole_answer_is_left_open(what: Scalar, number: int) -> None:
    assert solve([(what, number)]) == {}


def test_a_shape_needs_all_its_dims() -> None:
    assert shape_of((n, dim(4)), {n: 2}) == (2, 4)
    assert shape_of((n, m), {n: 2}) is None


def test_types_are_held_against_types() -> None:
    f = FuncType((), (), (tensor((n,), "i8"),), tensor((m,), "i8"))
    g = FuncType((), (), (tensor((3,), "i8"),), tensor((7,), "i8"))
    a, b = TupleType((tensor((n, m), "f32"), f)), TupleType((tensor((3, "k"), "f32"), g))
    assert solve(type_equations(a, b, {})) == {n: 3, m: 7}
    assert solve(type_equations(a, f, {})) == {}
