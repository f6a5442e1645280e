"""Rows in fewer instructions are as far off as their contract says, for numbers of any size."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from plica.ir.contract import approx, reassociates
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import buffer
from plica.ir.type.dtype import DType, f32, f64
from plica.schedule.default.gpu.row_arithmetic import FEWER, in_fewer_instructions


def shares(dtype: DType = f32) -> Stages:
    """Elements of rows, each by a number of its row."""
    x, s = buffer("x", (2, 3), dtype), buffer("s", (2,), dtype)
    return stages((x, s), (stage("y", (2, 3), lambda i, j: x[i, j] / s[i]),))


def powers() -> Stages:
    x = buffer("x", (3,), f32)
    return stages((x,), (stage("y", (3,), lambda i: sc.Intrinsic("exp", (x[i],))),))


NUMBERS = st.floats(width=32)


@given(st.lists(NUMBERS, min_size=6, max_size=6), st.lists(NUMBERS, min_size=2, max_size=2))
def test_quotients_by_what_a_row_shares(x: list[float], s: list[float]) -> None:
    """Also by numbers near the least and the greatest ones, by 0, infinite ones and none."""
    arrays = [np.array(x, np.float32).reshape(2, 3), np.array(s, np.float32)]
    made = in_fewer_instructions(shares(), FEWER)
    assert made is not shares()
    with np.errstate(all="ignore"):
        got, meant = evaluate_stages(made, arrays), evaluate_stages(shares(), arrays)
    np.testing.assert_allclose(got, meant, rtol=1e-5, atol=1e-37)


@given(st.lists(st.floats(-200, 88, width=32), min_size=3, max_size=3))
def test_exponentials(x: list[float]) -> None:
    arrays = [np.array(x, np.float32)]
    got = evaluate_stages(in_fewer_instructions(powers(), FEWER), arrays)
    np.testing.assert_allclose(got, evaluate_stages(powers(), arrays), rtol=1e-5, atol=1e-37)


def test_stricter_contracts_and_wider_numbers_are_left_alone() -> None:
    for contract in (reassociates, approx(1e-6)):
        assert in_fewer_instructions(shares(), contract) is shares()
    (same,) = in_fewer_instructions(shares(f64), FEWER).stages
    assert same is shares(f64).stages[0]


def test_one_quotient_for_each_element_stays_one() -> None:
    x = buffer("x", (3,), f32)
    of = stages((x, x), (stage("y", (3,), lambda i: x[i] / x[i]),))
    assert in_fewer_instructions(of, FEWER).stages == of.stages


def test_a_quotient_that_another_stage_rounds_stays_one() -> None:
    x, s = buffer("x", (2, 3), f32), buffer("s", (2,), f32)
    quotient = stage("q", (2, 3), lambda i, j: x[i, j] / s[i])
    rounded = stage("y", (2, 3), lambda i, j: sc.Intrinsic("round", (quotient.out[i, j],)))
    plain = stages((x, s), (quotient, rounded))
    assert in_fewer_instructions(plain, FEWER) is plain
