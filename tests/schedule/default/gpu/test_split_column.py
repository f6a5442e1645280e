"""Columns folded in parts: softmax of long ones, whatever is infinite in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f16, f32, f64
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.row_arithmetic import FEWER, in_fewer_instructions
from plica.schedule.default.gpu.split_column import split_columns
from tests.codegen.cuda.emulate import COMPILER, run

SMALL = Gpu(threads=4, warp=2, processors=2, shared=200, block=4)
"""So little that no processor keeps a few columns of sixty elements."""


def softmax(shape: tuple[int, int, int], dtype: DType = f32, times: float = 1.0) -> Stages:
    """Softmax along the axis before the last."""
    many, length, beside = shape
    x = buffer("x", shape, dtype)

    def value(n: Any, k: Any, j: Any) -> sc.Scalar:
        return sc.Cast(x[n, k, j], f32) * times if dtype is not f32 else x[n, k, j] * times

    def below(n: Any, k: Any, j: Any) -> sc.Scalar:
        return sc.Intrinsic("exp", (value(n, k, j) - most[n, j],))

    rows = (many, beside)
    most = stage("m", rows, lambda n, j: reduce("max", (length,), lambda k: value(n, k, j)))
    total = stage(
        "s", rows, lambda n, j: reduce("sum", (length,), lambda k: sc.Cast(below(n, k, j), f64))
    )
    out = stage(
        "y", shape, lambda n, k, j: sc.Cast(below(n, k, j) / sc.Cast(total[n, j], f32), dtype)
    )
    return stages((x,), (most, total, out))


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Numbers of which some columns, and parts of some, are infinite or none."""
    random = np.random.default_rng(seed)
    x = random.normal(size=shape) * 3
    x[:, : shape[1] // 2, 0] = -np.inf
    x[:, :, 1] = -np.inf if seed % 2 else x[:, :, 1]
    x[:, shape[1] // 3, shape[2] - 1] = (np.nan, np.inf, 1.0)[seed % 3]
    return x


def meant(x: Any, times: float) -> Any:
    wide = x.astype(np.float64) * times
    with np.errstate(invalid="ignore"):
        found = np.exp(wide - wide.max(1, keepdims=True))
        return found / found.sum(1, keepdims=True)


@settings(max_examples=4)
@given(st.integers(1, 2), st.sampled_from([32, 48, 60]), st.sampled_from([2, 6, 8, 20]),
       st.sampled_from([f32, f16]), st.integers(0, 5))  # fmt: skip
def test_parts_of_columns_are_joined(
    many: int, length: int, beside: int, dtype: DType, seed: int
) -> None:
    shape = (many, length, beside)
    of = softmax(shape, dtype, 0.5)
    made = split_columns(in_fewer_instructions(of, FEWER) if seed % 2 else of, SMALL)
    assert made is not None
    x = drawn(shape, seed).astype(dtype.numpy)
    _, found = _run(made, x)
    np.testing.assert_allclose(
        found.astype(np.float64), meant(x, 0.5), 2e-3 if dtype is f16 else 2e-5, 1e-7
    )


def _run(made: Stages, x: Any) -> tuple[Any, Any]:
    with np.errstate(invalid="ignore"):
        results = run_kernel(lower(kernel_of(made), "gpu"), [x])
    return results[:-1], results[-1]


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
def test_threads_do_not_race() -> None:
    made = split_columns(softmax((1, 60, 20)), SMALL)
    assert made is not None
    x = drawn((1, 60, 20), 2).astype(np.float32)
    found = np.zeros_like(x)
    run(fold(lower(kernel_of(made), "gpu"), "k"), [x, found])
    np.testing.assert_allclose(found, meant(x, 1.0), 2e-5, 1e-7)


def test_what_is_kept_well_and_other_passes_are_left_to_others() -> None:
    assert split_columns(softmax((16, 60, 4096)), Gpu()) is None
    assert split_columns(softmax((1, 8192, 8192)), Gpu()) is not None
    assert split_columns(softmax((1, 8191, 8192)), Gpu()) is None  # no parts of one length
    x = buffer("x", (600, 20), f32)
    total = stage("s", (20,), lambda j: reduce("sum", (600,), lambda k: x[k, j]))
    share = stage("y", (600, 20), lambda i, j: x[i, j] / total[j])
    assert split_columns(stages((x,), (total, share)), SMALL) is None
