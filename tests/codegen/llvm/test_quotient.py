"""Quotients by a number that is known: what Python says, for every sign and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.ir.loop.scalar import Buffer, FloorDiv, FloorMod, Lit
from plica.ir.loop.tensor import Compute, buffer, compute
from plica.ir.op.elementwise import call
from plica.ir.type.dtype import DType, f32, i8, i32, i64, u8, u32
from tests.codegen.native import native_all

Array = np.ndarray[Any, Any]
EDGES = (0, 1, 2, 5, 6, 7, 8, 9, 63, 64, 65, 100, 127)


@pytest.mark.parametrize("of", [i8, i32, i64, u8, u32], ids=str)
def test_a_quotient_by_a_number_is_that_of_python(of: DType) -> None:
    low, high = of.bounds
    numbers = sorted({each for n in EDGES for each in (n, -n, low + n, high - n) if low <= each})
    x = np.array(numbers, of.numpy)
    given = buffer("x", x.shape, of)
    divisors = [1, 2, 3, 7, 8, 64, 100]
    works = [_divided(given, by, op) for by in divisors for op in (FloorDiv, FloorMod)]
    found = native_all(works, x)
    wanted = [[f(n, by) for n in numbers] for by in divisors for f in (_quotient, _remainder)]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.tolist() == theirs


def _divided(x: Buffer, by: int, op: type[FloorDiv | FloorMod]) -> Compute:
    return compute((x,), x.shape, lambda i: op(x[i], Lit(by, x.dtype)))


def _quotient(a: int, b: int) -> int:
    return a // b


def _remainder(a: int, b: int) -> int:
    return a % b


def test_remainders_of_f32_are_exact_whatever_the_quotient() -> None:
    rng = np.random.default_rng(5)
    ends = np.array([0, -0.0, 1, -1, 0.7, 5.5, np.inf, -np.inf, np.nan, 1e-45, 3.4e38], np.float32)
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    bits = rng.integers(0, 2**32, (2, 4000), dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal((2, 500)) * [[1000], [1]]).astype(np.float32)
    x, y = np.concatenate([pairs, bits, near], axis=1)
    a, b = buffer("x", x.shape, f32), buffer("y", y.shape, f32)
    works = [
        compute((a, b), x.shape, lambda i: call("fmod", a[i], b[i])),
        compute((a, b), x.shape, lambda i: FloorMod(a[i], b[i])),
    ]
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y), np.mod(x, y)
    for mine, theirs in zip(native_all(works, x, y), wanted, strict=True):
        same = (mine.view(np.uint32) == theirs.view(np.uint32)) | np.isnan(mine) & np.isnan(theirs)
        assert same.all()
