"""Factors in fixed point are near, powers of two exact."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from plica.rewrite.quantise.word import common_shift, fixed_point, shift_of

FACTORS = st.floats(2.0**-20, 2.0**20)


@given(FACTORS)
def test_a_factor_is_near(factor: float) -> None:
    found = fixed_point(np.array([factor, 1.0]))
    assert found is not None
    multiplier, shift = (each.astype(np.float64) for each in found)
    assert 0 <= shift.min() <= shift.max() <= 62
    assert abs(multiplier[0] / 2 ** shift[0] / factor - 1) <= 2.0**-31


@given(st.integers(0, 30))
def test_powers_of_two_are_shifts(shift: int) -> None:
    found = shift_of(np.array(2.0**-shift))
    assert found is not None
    assert int(found) == shift


def test_others_are_none() -> None:
    assert shift_of(np.array(2.0)) is None
    assert shift_of(np.array([0.5, 0.3])) is None
    assert shift_of(np.array(0.0)) is None
    assert fixed_point(np.array(np.inf)) is None
    assert fixed_point(np.array(-1.0)) is None
    assert fixed_point(np.array(2.0**40)) is None


def test_a_tiny_factor_keeps_the_farthest_shift() -> None:
    found = fixed_point(np.array(2.0**-40))
    assert found is not None
    assert (int(found[0]), int(found[1])) == (1 << 22, 62)


@given(FACTORS, FACTORS)
def test_two_factors_of_bytes_have_one_shift(left: float, right: float) -> None:
    found = common_shift(left, right)
    if found is None:
        assert max(left, right) < 2.0**-9 or max(left, right) >= 2.0**20
        return
    (a, b), shift = found
    assert (a + b) * 256 < 2**30
    assert abs(a / 2**shift - left) <= 0.5 / 2**shift
    assert abs(b / 2**shift - right) <= 0.5 / 2**shift


@given(st.integers(-8, 8), st.integers(-8, 8))
def test_powers_of_two_have_one_exactly(left: int, right: int) -> None:
    found = common_shift(2.0**left, 2.0**right)
    assert found is not None
    (a, b), shift = found
    assert (a, b) == (2 ** (left + shift), 2 ** (right + shift))
    assert shift == max(0, -left, -right)
