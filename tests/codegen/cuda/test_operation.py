"""Operations as a C++ compiler reads them."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import BitAnd, BitOr, BitXor
from plica.ir.loop.tensor import buffer, compute
from plica.ir.type.dtype import DType, bf16, i8, i64, u8, u64
from plica.schedule.default.gpu import Gpu, gpu_schedule
from tests.codegen.cuda.emulate import COMPILER, run as emulated

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


@pytest.mark.parametrize("dtype", [i8, i64, u8, u64], ids=str)
def test_bits_of_integers_of_any_width(dtype: DType) -> None:
    x, y = buffer("x", (3, 5), dtype), buffer("y", (3, 5), dtype)
    kernel = defined(
        compute((x, y), (3, 5), lambda *at: BitXor(BitAnd(x[at], y[at]), BitOr(x[at], y[at])))
    )
    made = gpu_schedule(kernel, Gpu(threads=8, warp=4))
    assert made is not None
    random = np.random.default_rng(0)
    low, high = dtype.bounds
    one, two = (random.integers(low, high, (3, 5), dtype.numpy) for _ in range(2))
    (expected,) = run_kernel(kernel, [one, two])
    found = np.zeros_like(one)
    emulated(fold(lower(made[1], "gpu"), "k"), [one, two, found])
    np.testing.assert_array_equal(found, expected)


def test_bfloats_are_rounded_to_even() -> None:
    x = buffer("x", (64,), bf16)
    kernel = defined(compute((x,), (64,), lambda i: x[i] + x[63 - i]))
    made = gpu_schedule(kernel, Gpu(threads=8, warp=4))
    assert made is not None
    given = np.random.default_rng(0).standard_normal(64).astype(bf16.numpy)
    (expected,) = run_kernel(kernel, [given])
    found = np.zeros_like(given)
    emulated(fold(lower(made[1], "gpu"), "k"), [given, found])
    np.testing.assert_array_equal(found, expected)
