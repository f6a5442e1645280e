"""The reference and the cases of quantisation: whole numbers and fractions of any size."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np

from plica.ir.type.dtype import DTYPES, f32, f64, i32
from tests.ir.reference.case import Case, Draw, array, case
from tests.ir.reference.meaning import REFERENCE, Array

STORED: Final = tuple(each for each in DTYPES if each.is_integer and each.bits <= 32)
ROUNDING: Final = ("even", "up", "away")


def nearest(of: Fraction, rounding: str) -> int:
    """The nearest whole number, ties as said."""
    below = math.floor(of)
    rest = of - below
    if rest != Fraction(1, 2):
        return below + (rest > Fraction(1, 2))
    return {"up": below + 1, "even": below + below % 2, "away": below + (of > 0)}[rounding]


def fixed(x: int, multiplier: int, shift: int, rounding: str) -> int:
    """A product in fixed point, held within 32 bits."""
    by = min(max(shift, 0), 62)
    found = nearest(Fraction(x * multiplier, 1 << by), rounding)
    return min(max(found, -(1 << 31)), (1 << 31) - 1)


def _quantise(x: Array, scale: Array, zero: Array, **attrs: Any) -> Any:
    info = ml_dtypes.iinfo(zero.dtype)  # type: ignore[no-untyped-call]  # it has no types
    given = [info.min, info.max] if attrs["low"] is None else [attrs["low"], attrs["high"]]
    quotient, point = np.broadcast_arrays(x / scale, zero)
    found = []
    for value, moved in zip(quotient.flat, point.flat, strict=True):
        if np.isnan(value):
            found.append(0)
            continue
        steps = value if np.isinf(value) else nearest(Fraction(float(value)), attrs["rounding"])
        whole = float(x.dtype.type(steps) + moved.astype(x.dtype))
        whole = min(max(whole, float(given[0])), float(given[1]))
        found.append(int(min(max(whole, info.min), info.max)))
    return np.array(found, zero.dtype).reshape(quotient.shape)


def _dequantise(x: Array, scale: Array, zero: Array) -> Any:
    # Numbers of u32 wrap around into i32, and so do differences.
    values, points = (each.astype(np.int64).astype(np.int32) for each in (x, zero))
    apart = (values.astype(np.int64) - points).astype(np.int32)
    return apart.astype(scale.dtype) * scale


def _fixed_multiply(x: Array, multiplier: Array, shift: Array, rounding: str) -> Any:
    several = np.broadcast_arrays(x, multiplier, shift)
    flat = zip(*(each.flat for each in several), strict=True)
    found = [fixed(int(a), int(b), int(c), rounding) for a, b, c in flat]
    return np.array(found, np.int32).reshape(several[0].shape)


REFERENCE.update(quantise=_quantise, dequantise=_dequantise, fixed_multiply=_fixed_multiply)


def _three(draw: Draw) -> Any:
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    return draw(shapes).input_shapes


@case("quantise")
def _quantise_case(draw: Draw, _: str) -> Case:
    x, scale, zero = _three(draw)
    kind, into = draw(st.sampled_from((f32, f64))), draw(st.sampled_from(STORED))
    within = [each for each in ((0, 1), (0, 7), (3, 100)) if each[1] <= into.bounds[1]]
    low, high = draw(st.sampled_from(((None, None), *within)))
    args = (
        draw(array(kind, x, wild=True)),
        draw(array(kind, scale, wild=True)),
        draw(array(into, zero, wild=True)),
    )
    return Case(args, {"rounding": draw(st.sampled_from(ROUNDING)), "low": low, "high": high})


@case("dequantise")
def _dequantise_case(draw: Draw, _: str) -> Case:
    x, scale, zero = _three(draw)
    one, other, kind = (draw(st.sampled_from(each)) for each in (STORED, STORED, (f32, f64)))
    args = (
        draw(array(one, x, wild=True)),
        draw(array(kind, scale, wild=True)),
        draw(array(other, zero, wild=True)),
    )
    return Case(args, {})


@case("fixed_multiply")
def _fixed_case(draw: Draw, _: str) -> Case:
    shapes = _three(draw)
    args = tuple(draw(array(i32, each, wild=True)) for each in shapes)
    return Case(args, {"rounding": draw(st.sampled_from(ROUNDING))})
