"""Numbers: one at a time they mean what they mean in arrays, at every dtype and at the edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import CompilerBug
from plica.ir.interpret import array_arithmetic as arithmetic, number
from plica.ir.loop.scalar import (
    BINARY,
    COMPARISON,
    INTRINSICS,
    Add,
    BitAnd,
    BitOr,
    BitXor,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Pow,
    Scalar,
    ShiftLeft,
    ShiftRight,
    Sub,
)
from plica.ir.loop.scalar_table import INTRINSICS as ROWS
from plica.ir.type.dtype import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i32, u8
from tests.strategies import numbers

INTEGER_ONLY = {BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight}
KINDS = [*BINARY, *COMPARISON]


def admits(kind: type[Scalar], dtype: DType) -> bool:
    if dtype is bool_:
        return kind in (Min, Max, BitAnd, BitOr, BitXor, *COMPARISON)
    if dtype.is_float:
        return kind not in INTEGER_ONLY
    return kind is not Div


def same(found: Any, expected: Any, dtype: DType, exact: bool) -> bool:
    there = np.asarray(expected).item() if dtype is not bool_ else bool(expected)
    there = float(there) if dtype.is_float else there
    if isinstance(there, float):
        if math.isnan(there) or math.isnan(found):
            return math.isnan(there) and math.isnan(found)
        if not exact and math.isfinite(there):
            return math.isclose(
                found, there, rel_tol=1e-2 if dtype.bits == 16 else 1e-6, abs_tol=1e-30
            )
    return bool(found == there)


@given(st.sampled_from(KINDS), st.sampled_from(DTYPES), st.data())
def test_operations_agree_with_arrays(
    kind: type[Scalar], dtype: DType, data: st.DataObject
) -> None:
    if not admits(kind, dtype):
        return
    a, b = data.draw(numbers(dtype)), data.draw(numbers(dtype))
    with np.errstate(all="ignore"):
        left, right = np.asarray([a], dtype.numpy), np.asarray([b], dtype.numpy)
        expected = arithmetic.binary(kind)(left, right)[0]
        found = number.binary(kind, dtype)(a, b)
    result = bool_ if kind in COMPARISON else dtype
    assert same(found, expected, result, exact=kind is not Pow), (kind, dtype, a, b)


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.data())
def test_casts_agree_with_arrays(source: DType, target: DType, data: st.DataObject) -> None:
    value = data.draw(numbers(source))
    with np.errstate(all="ignore"):
        expected = arithmetic.cast(np.asarray([value], source.numpy), target)[0]
        found = number.cast(source, target)(value)
    assert same(found, expected, target, exact=True), (source, target, value)


@given(st.sampled_from(sorted(INTRINSICS)), st.sampled_from(DTYPES), st.data())
def test_intrinsics_agree_with_arrays(name: str, dtype: DType, data: st.DataObject) -> None:
    if not dtype.is_float and not (dtype.is_integer and name in ("abs", "sign")):
        return
    count = ROWS[name].arity
    args = [data.draw(numbers(dtype)) for _ in range(count)]
    with np.errstate(all="ignore"):
        lifted = [np.asarray([each], dtype.numpy) for each in args]
        expected = arithmetic.intrinsic(name, dtype)(*lifted)[0]
        found = number.intrinsic(name, dtype)(*args)
    result = bool_ if name in ("isnan", "isinf") else dtype
    assert same(found, expected, result, exact=False), (name, dtype, args)


@given(st.sampled_from(["sum", "prod", "max", "min"]), st.sampled_from(DTYPES[1:]), st.data())
def test_the_identity_of_a_combiner(combiner: str, dtype: DType, data: st.DataObject) -> None:
    value = data.draw(numbers(dtype, finite=True))
    combined = number.combine(combiner, dtype)(number.identity(combiner, dtype), value)
    assert combined == value


@pytest.mark.parametrize(
    ("kind", "dtype", "a", "b", "expected"),
    [
        (Add, i8, 127, 1, -128),
        (Sub, u8, 0, 1, 255),
        (Mul, i8, -128, -1, -128),
        (FloorDiv, i8, -128, -1, -128),
        (FloorDiv, i32, 7, 0, 0),
        (FloorMod, i32, 7, 0, 0),
        (FloorMod, i32, -7, 3, 2),
        (Pow, i32, 2, -1, 0),
        (Pow, u8, 3, 200, pow(3, 200, 256)),
        (ShiftLeft, i8, 1, 7, -128),
        (ShiftLeft, i8, 1, 8, 0),
        (ShiftRight, i8, -1, 100, -1),
        (Div, f64, 1.0, -0.0, -math.inf),
        (Div, f32, 0.1, 3.0, float(np.float32(0.1) / np.float32(3.0))),
    ],
)
def test_the_laws_at_the_edges(
    kind: type[Scalar], dtype: DType, a: Any, b: Any, expected: Any
) -> None:
    assert number.binary(kind, dtype)(number.rounding(dtype)(a), b) == expected


def test_nan_wins_in_minimum_and_maximum() -> None:
    for kind in (Min, Max):
        assert math.isnan(number.binary(kind, f32)(math.nan, 1.0))
        assert math.isnan(number.binary(kind, f32)(1.0, math.nan))


def test_what_has_no_meaning_is_a_bug() -> None:
    with pytest.raises(CompilerBug):
        number.binary(Div, i32)
    with pytest.raises(CompilerBug):
        number.intrinsic("exp", i32)


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64])
@pytest.mark.parametrize(("kind", "sign"), [(Min, -1.0), (Max, 1.0)])
def test_zeros_are_ordered_by_their_signs(dtype: DType, kind: type[Scalar], sign: float) -> None:
    one = number.binary(kind, dtype)
    many = arithmetic.binary(kind)
    for a, b in ((0.0, -0.0), (-0.0, 0.0)):
        assert math.copysign(1.0, one(a, b)) == sign
        for count in (1, 5, 67):  # numpy's own answer depends on how many there are
            found = many(np.full(count, a, dtype.numpy), np.full(count, b, dtype.numpy))
            assert (np.signbit(found) == (sign < 0)).all()
            assert found.dtype == dtype.numpy
