"""Dims: the normal form means what the term meant, and equality is equality for all sizes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from plica.core.digest import alpha_equal
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Max, Min, Mul, Scalar, ScalarVar, Sub
from plica.ir.type.dim import (
    dim,
    dim_var,
    evaluate,
    from_polynomial,
    greater,
    is_size,
    known,
    lesser,
    lower_bound,
    normal_dim,
    polynomial,
    product,
    quotient,
    same_dim,
)
from plica.ir.type.dtype import i64
from tests.strategies import index_terms

N, M, K = dim_var("n"), dim_var("m"), dim_var("k")
SIZES = st.tuples(*[st.integers(0, 7)] * 3).map(lambda t: dict(zip((N, M, K), t, strict=True)))


def meaning(term: Scalar, sizes: Mapping[ScalarVar, int]) -> int:
    """What an index term means, by recursion."""
    match term:
        case Lit(value, _):
            return int(value)
        case ScalarVar():
            return sizes[term]
    a, b = (meaning(kid, sizes) for kid in term._children)  # type: ignore[arg-type]
    match term:
        case Add():
            return a + b
        case Sub():
            return a - b
        case Mul():
            return a * b
        case FloorDiv():
            return a // b if b else 0
        case FloorMod():
            return a % b if b else 0
        case Min():
            return min(a, b)
        case Max():
            return max(a, b)
    raise AssertionError(term)


@given(index_terms(), SIZES)
def test_the_normal_form_means_the_same(term: Scalar, sizes: dict[Term, int]) -> None:
    given_ = {k: v for k, v in sizes.items() if isinstance(k, ScalarVar)}
    assert meaning(normal_dim(term), given_) == meaning(term, given_)
    assert evaluate(term, sizes) == meaning(term, given_)


@given(index_terms())
def test_the_normal_form_is_normal(term: Scalar) -> None:
    once = normal_dim(term)
    assert normal_dim(once) is once
    assert dim(once) is once
    assert same_dim(term, once)
    assert from_polynomial(polynomial(once)) is once


@given(index_terms(), index_terms(), SIZES)
def test_equal_dims_are_equal_at_all_sizes(a: Scalar, b: Scalar, sizes: dict[Term, int]) -> None:
    if same_dim(a, b):
        assert evaluate(a, sizes) == evaluate(b, sizes)
    assert same_dim(a, a)
    assert same_dim(a, b) == same_dim(b, a)


@given(index_terms(depth=2), index_terms(depth=2), index_terms(depth=2))
def test_the_laws_of_arithmetic(a: Scalar, b: Scalar, c: Scalar) -> None:
    assert same_dim(a + b, b + a)
    assert same_dim(a * b, b * a)
    assert same_dim(a * (b + c), a * b + a * c)
    assert same_dim((a + b) - b, a)
    assert same_dim(product((a, b, c)), a * b * c)
    assert same_dim(product(()), Lit(1, i64))


@given(index_terms(depth=2), index_terms(depth=2), SIZES)
def test_a_quotient_is_exact(whole: Scalar, part: Scalar, sizes: dict[Term, int]) -> None:
    found = quotient(whole, part)
    divisor = evaluate(part, sizes)
    if found is not None and divisor:
        assert divisor * (evaluate(found, sizes) or 0) == evaluate(whole, sizes)


@given(index_terms(depth=2), st.integers(1, 5))
def test_multiples_divide(part: Scalar, factor: int) -> None:
    if len(polynomial(part)) == 1:
        found = quotient(normal_dim(part * factor * N), part)
        assert found is not None
        assert same_dim(found, factor * N)


def test_quotients_by_hand() -> None:
    assert quotient(normal_dim(4 * N * M), normal_dim(2 * N)) is normal_dim(2 * M)
    assert quotient(normal_dim(4 * N + 2), Lit(2, i64)) is normal_dim(2 * N + 1)
    assert quotient(normal_dim(4 * N + 1), Lit(2, i64)) is None
    assert quotient(N, M) is None
    assert quotient(normal_dim(N + M), normal_dim(M + N)) is Lit(1, i64)
    assert quotient(Lit(0, i64), Lit(0, i64)) is None
    assert quotient(N, Lit(0, i64)) is None


@pytest.mark.parametrize(
    ("term", "normal"),
    [
        (2 * (N + 1) - N, N + 2),
        (N - N, Lit(0, i64)),
        ((4 * N + 2) // 2, 2 * N + 1),
        ((4 * N + 3) // 2, 2 * N + 1),
        (FloorMod(N, Lit(1, i64)), Lit(0, i64)),
        (Max(N, N), N),
        (Min(Lit(2, i64), Lit(3, i64)), Lit(2, i64)),
        (Lit(7, i64) // 0, Lit(0, i64)),
        (N * 0, Lit(0, i64)),
        (3 + N, N + 3),
    ],
)
def test_normal_forms_by_hand(term: Scalar, normal: Scalar) -> None:
    assert normal_dim(term) is normal_dim(normal)


def test_names_do_not_order_dims() -> None:
    """`a + b` under other names stays the sum of the first and the second."""
    a, b = dim_var("a"), dim_var("b")
    assert normal_dim(b + a) is Add(b, a)
    assert normal_dim(a + b) is Add(a, b)
    assert not alpha_equal(normal_dim(b + a), normal_dim(a + b))


def test_products_do_not_explode() -> None:
    term: Scalar = Lit(1, i64)
    for i in range(60):
        term = term * (dim_var(Name("a", i)) + dim_var(Name("b", i)))
    once = normal_dim(term)
    assert normal_dim(once) is once
    assert same_dim(once, term)
    sizes: dict[Term, int] = {dim_var(Name(h, i)): 1 for h in "ab" for i in range(60)}
    assert evaluate(term, {**sizes, dim_var(Name("b", 0)): -1}) == 0


def test_known_and_unknown() -> None:
    assert known(dim(3)) == 3
    assert known(dim(N)) is None
    assert evaluate(N + M, {N: 2}) is None


@given(index_terms(), index_terms(), SIZES)
def test_the_lesser_and_the_greater(a: Scalar, b: Scalar, sizes: dict[ScalarVar, int]) -> None:
    one, other = meaning(a, sizes), meaning(b, sizes)
    assert meaning(lesser(a, b), sizes) == min(one, other)
    assert meaning(greater(a, b), sizes) == max(one, other)
    assert not is_size(a) or one >= 0
    assert (bound := lower_bound(a)) is None or one >= bound


def test_sizes_are_never_negative() -> None:
    assert lesser(N, dim(2 * N)) is N
    assert greater(N, Lit(0, i64)) is N
    assert lesser(Lit(4, i64), dim(M + 4)) is Lit(4, i64)
    assert isinstance(lesser(N, M), Min)
    assert not is_size(dim(N - 1))
