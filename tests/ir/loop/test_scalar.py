"""Scalars: building them, and their dtypes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import IllFormed
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.loop.scalar import (
    INTRINSICS,
    Add,
    Buffer,
    Cast,
    Eq,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Le,
    Like,
    Lit,
    Load,
    Lt,
    Mul,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    dtype_of,
    index,
    like,
    lit,
)
from plica.ir.type.dtype import DTYPES, DType, bool_, f32, i8, i64, u8
from tests.strategies import dtypes, numbers, scalars

N = ScalarVar(Name("n"), i64)
X = ScalarVar(Name("x"), f32)


@given(st.data())
def test_scalars_of_a_dtype_have_it(data: st.DataObject) -> None:
    dtype = data.draw(dtypes())
    buffers = [Buffer(Name("b", i), (lit(2, i64),), each) for i, each in enumerate(DTYPES)]
    term = data.draw(scalars(dtype, (N, X), buffers))
    assert dtype_of(term) is dtype
    for node in post_order(term):
        if isinstance(node, Scalar):
            assert isinstance(dtype_of(node), DType)


def test_operators_build_terms_and_numbers_take_the_other_sides_dtype() -> None:
    assert N + 1 is Add(N, Lit(1, i64))
    assert 1 + N is Add(Lit(1, i64), N)
    assert N - 1 is Sub(N, Lit(1, i64))
    assert 2 * X is Mul(Lit(2.0, f32), X)
    assert N // 2 is FloorDiv(N, Lit(2, i64))
    assert 7 // N is FloorDiv(Lit(7, i64), N)
    assert N % 2 is FloorMod(N, Lit(2, i64))
    assert -X is Sub(Lit(0.0, f32), X)
    assert (N < 3) is Lt(N, Lit(3, i64))
    assert (N <= 3) is Le(N, Lit(3, i64))
    assert (N > 3) is Lt(Lit(3, i64), N)
    assert (N >= 3) is Le(Lit(3, i64), N)
    assert dtype_of(X / 2) is f32
    assert index(3) is like(3, N) is Lit(3, i64)
    assert index(N) is like(N, X) is N


@given(st.data())
def test_a_literal_holds_a_value_of_its_dtype(data: st.DataObject) -> None:
    dtype = data.draw(dtypes())
    value = data.draw(numbers(dtype))
    term = Lit(value, dtype)
    assert type(term.value) is {"bool": bool, "float": float}.get(dtype.kind, int)
    assert term.value == value or (math.isnan(value) and math.isnan(term.value))
    assert Lit(term.value, dtype) is term


def test_a_literal_is_normal() -> None:
    assert Lit(1, f32) is Lit(1.0, f32) is Lit(True, f32)
    assert Lit(1.0, i64) is Lit(1, i64) is Lit(True, i64)
    assert Lit(1, bool_) is Lit(True, bool_)
    assert Lit(0.0, f32) is not Lit(-0.0, f32)
    assert Lit(math.nan, f32) is Lit(math.nan, f32)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (128, i8), (-129, i8), (-1, u8), (0.5, i64), (math.nan, i64), (math.inf, i64),
        (2**63, i64), (10**400, f32), (2**1024 - 1, f32), (-(10**400), f32),
    ],
)  # fmt: skip
def test_no_literal_holds_what_its_dtype_lacks(value: float, dtype: DType) -> None:
    with pytest.raises(IllFormed, match="is no value of"):
        Lit(value, dtype)


def test_a_load_has_as_many_indices_as_its_buffer_dims() -> None:
    buffer = Buffer(Name("b"), (lit(2, i64), N), f32)
    assert buffer[0, N] is Load(buffer, (Lit(0, i64), N))
    assert dtype_of(buffer[0, N]) is f32
    wrong: tuple[Like | tuple[Like, ...], ...] = (0, (0, 0, 0), ())
    for each in wrong:
        with pytest.raises(IllFormed, match="has rank 2"):
            _ = buffer[each]


def test_dtypes_of_what_changes_them() -> None:
    assert dtype_of(Cast(N, f32)) is f32
    assert dtype_of(Eq(X, X)) is bool_
    assert dtype_of(Select(Eq(X, X), N, N)) is i64
    assert dtype_of(Intrinsic("exp", (X,))) is f32
    assert dtype_of(Intrinsic("isnan", (X,))) is bool_
    assert {"exp", "isnan", "fmod"} <= INTRINSICS


def test_the_dtype_of_a_deep_term() -> None:
    term: Scalar = X
    for _ in range(20_000):
        term = Add(term, X)
    assert dtype_of(term) is f32
