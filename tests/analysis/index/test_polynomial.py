"""Polynomials: equal ones are equal, and their terms mean the same."""

from __future__ import annotations

from hypothesis import given

from plica.analysis.index import EMPTY
from plica.analysis.index.polynomial import polynomial, to_term
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar
from plica.ir.type.dtype import i64
from tests.analysis.index.box import X, Y, Z, points, terms, value


@given(terms())
def test_term_of_a_polynomial_means_the_same(term: Scalar) -> None:
    back = to_term(polynomial(term))
    assert back is not None
    assert all(value(back, point) == value(term, point) for point in points(EMPTY, size=2))
    assert to_term(polynomial(back)) is back


@given(terms(), terms(), terms(2))
def test_ring(a: Scalar, b: Scalar, c: Scalar) -> None:
    assert polynomial(a + b) == polynomial(b + a)
    assert polynomial((a + b) * c) == polynomial(c * b + a * c)
    assert polynomial(a - a).terms == {}


def test_products_do_not_explode() -> None:
    term: Scalar = X + Y + Z
    for _ in range(60):
        term = Mul(term, term)
    assert len(polynomial(term).terms) == 1


def test_doubling() -> None:
    term: Scalar = X
    for _ in range(60):
        term = Add(term, term)
    assert polynomial(term).terms == {X: 2**60}


def test_numbers_too_large() -> None:
    huge = Lit(2**62, i64)
    assert to_term(polynomial(X * huge * huge)) is None
