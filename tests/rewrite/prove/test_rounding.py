"""Roundings that change nothing: the law against numpy, and rules that are proved by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core import Name
from plica.ir.loop.scalar import Cast, Lit, Lt, Max, Min, Scalar, ScalarVar, Select, Sub
from plica.ir.type import bf16, f16, f32, f64
from plica.rewrite.check.verdict import Proved
from plica.rewrite.packs import find_pack
from plica.rewrite.prove import attempt
from plica.rewrite.prove.rounding import direct
from plica.rewrite.prove.solver import is_available

X, Y = (ScalarVar(Name(name), f16) for name in "xy")
WIDE = (Cast(X, f32), Cast(Y, f32), Lit(0.0, f32), Lit(-0.0, f32), Lit(6.0, f32), Lit(1e30, f32))
FINITE = st.floats(width=16, allow_nan=False)


def _extended(parts: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    pair = st.tuples(parts, parts)
    return st.one_of(
        pair.map(lambda two: Max(*two)), pair.map(lambda two: Min(*two)),
        pair.map(lambda two: Select(Lt(*two), two[1], two[0])),
        parts.map(lambda one: Sub(Lit(-0.0, f32), one)),
    )  # fmt: skip


def value(term: Scalar, at: dict[Scalar, Any]) -> Any:
    """A scalar by numpy, in its own dtype."""
    if term in at:
        return at[term]
    match term:
        case Lit(number, dtype):
            return np.asarray(number, dtype.numpy)[()]
        case Cast(inner, dtype):
            return value(inner, at).astype(dtype.numpy)
        case Max(left, right) | Min(left, right):
            one, other = value(left, at), value(right, at)
            negative = np.signbit if isinstance(term, Min) else lambda each: not np.signbit(each)
            if one == other:
                return one if negative(one) else other
            return (np.maximum if isinstance(term, Max) else np.minimum)(one, other)
        case Select(condition, then, orelse):
            return value(then if value(condition, at) else orelse, at)
        case Lt(left, right):
            return value(left, at) < value(right, at)
        case Sub(left, right):
            return value(left, at) - value(right, at)
    raise AssertionError(term)


@settings(max_examples=200, deadline=None)
@given(st.recursive(st.sampled_from(WIDE), _extended, max_leaves=5), FINITE, FINITE)
def test_a_scalar_without_detours_has_its_value(term: Scalar, x: float, y: float) -> None:
    whole = Cast(term, f16)
    at: dict[Scalar, Any] = {X: np.float16(x), Y: np.float16(y)}
    with np.errstate(over="ignore", invalid="ignore"):
        before, after = value(whole, at), value(direct(whole), at)
    assert before.tobytes() == after.tobytes()


def test_what_is_rounded_stays() -> None:
    narrow = ScalarVar(Name("z"), bf16)
    for term in (
        Cast(Max(Cast(X, f32), Lit(0.1, f32)), f16),
        Cast(Cast(narrow, f32), f16),
        Cast(Cast(ScalarVar(Name("w"), f64), f32), f64),
        Cast(Cast(X, bf16), f16),
    ):
        assert direct(term) is term


@pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")
def test_a_relu_of_what_is_rounded_late_is_proved_to_the_bit() -> None:
    rule = next(each for each in find_pack("algebra") if each.name == "relu-of-softplus")
    verdict = attempt(rule)
    assert isinstance(verdict, Proved)
    assert "real arithmetic" not in verdict.laws
    assert "what was widened is rounded to itself" in verdict.theorems
