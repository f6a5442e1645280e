"""Elementwise work on threads: vectors of 16 bytes, several by a thread where there is much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import defined
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f16, f32
from plica.schedule.default.gpu import Gpu, gpu_schedule
from plica.schedule.default.gpu.elementwise import ThreadTiling, cut_of, flat_elements
from plica.schedule.default.gpu.thread import flat_schedule

SMALL = Gpu(processors=1, threads=8, warp=4)


def added(shape: tuple[int, ...], dtype: DType = f32) -> Kernel:
    x, b = buffer("x", shape, dtype), buffer("b", shape[-1:], dtype)
    return defined(compute((x, b), shape, lambda *at: x[at] + b[at[-1]]))


@pytest.mark.parametrize("shape", [(5, 8), (3, 7), (2, 3, 4), (64,)], ids=str)
def test_elements_mean_the_same(shape: tuple[int, ...]) -> None:
    kernel = added(shape)
    made = gpu_schedule(kernel, SMALL)
    assert made is not None
    random = np.random.default_rng(0)
    x, b = (random.standard_normal(each, np.float32) for each in (shape, shape[-1:]))
    (found,) = run_kernel(lower(made[1], "gpu"), [x, b])
    np.testing.assert_array_equal(found, x + b)


def test_one_element_has_a_thread() -> None:
    x = buffer("x", (), f32)
    made = gpu_schedule(defined(compute((x,), (), lambda: x[()] + x[()])), Gpu())
    assert made is not None
    (found,) = run_kernel(lower(made[1], "gpu"), [np.float32(3.5)])
    np.testing.assert_array_equal(found, np.float32(7))


@pytest.mark.parametrize("count", [5, 40, 300])
def test_one_sum_is_that_of_all_threads(count: int) -> None:
    x = buffer("x", (count,), f32)
    made = gpu_schedule(
        defined(compute((x,), (), lambda: reduce("sum", (count,), lambda k: x[k]))), SMALL
    )
    assert made is not None
    given_ = np.arange(count, dtype=np.float32)
    (found,) = run_kernel(lower(made[1], "gpu"), [given_])
    np.testing.assert_array_equal(found, given_.sum())
    assert ("threadIdx.x" in made[0].to_python()) is True


@settings(max_examples=5)
@given(st.integers(60, 70), st.integers(70, 80), st.sampled_from((f32, f16)))
def test_rows_that_fill_no_vectors_are_one_row(rows: int, length: int, dtype: DType) -> None:
    """What lies as the result is read in vectors; what rows or columns share is found by place."""
    x, b, c = (buffer(word, shape, dtype) for word, shape in (
        ("x", (rows, length)), ("b", (length,)), ("c", (rows, 1))))  # fmt: skip
    sum_ = stage("s", (rows, length), lambda i, j: x[i, j] + b[j])
    both = stage("y", (rows, length), lambda i, j: sum_[i, j] * c[i, 0] + x[i, j])
    of = stages((x, b, c), (sum_, both))
    made = flat_elements(of, SMALL)
    assert (made is None) == (length % (16 // dtype.bytes) == 0)
    if made is None:
        return
    random = np.random.default_rng(0)
    arrays = [random.integers(-4, 5, [known(n) or 0 for n in each.shape]).astype(dtype.numpy)
              for each in of.inputs]  # fmt: skip
    given_ = [array.reshape([known(n) or 0 for n in each.shape])
              for array, each in zip(arrays, made.inputs, strict=True)]  # fmt: skip
    scheduled = flat_schedule(kernel_of(made), SMALL)
    assert scheduled is not None
    assert len(scheduled[0]) > 3
    kernel = lower(scheduled[1], "gpu")
    (found,) = run_kernel(kernel, given_)
    np.testing.assert_array_equal(found.reshape(rows, length), evaluate_stages(of, arrays))
    assert "*((const uint4*)&x" in fold(kernel, "k").text


def test_what_is_read_across_or_shifted_is_no_row() -> None:
    x = buffer("x", (63, 63), f32)
    for turned in (lambda i, j: x[j, i], lambda i, j: x[i, (j + 1) % 63], lambda i, j: x[0, j]):
        assert flat_elements(stages((x,), (stage("y", (63, 63), turned),)), SMALL) is None


@pytest.mark.parametrize("rows", [2, 600])
def test_long_rows_are_summed_by_neighbours(rows: int) -> None:
    """A row that threads do not divide evenly; few rows have a block each, many rows a warp."""
    x = buffer("x", (rows, 1031), f32)
    gpu = Gpu(processors=1, threads=16, warp=4)
    made = gpu_schedule(
        defined(compute((x,), (rows,), lambda i: reduce("sum", (1031,), lambda k: x[i, k]))), gpu
    )
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    assert code.launches[0].block == ((16, 1, 1) if rows == 2 else (4, 8, 1))
    if rows == 2:
        given_ = np.random.default_rng(0).integers(-9, 9, (rows, 1031)).astype(np.float32)
        (found,) = run_kernel(lower(made[1], "gpu"), [given_])
        np.testing.assert_array_equal(found, given_.sum(1))


def test_much_work_has_several_vectors_a_thread() -> None:
    made = gpu_schedule(added((1 << 13, 1 << 13)), Gpu())
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    assert code.launches[0].block == (256, 1, 1)
    assert code.launches[0].grid[0] * 256 * 4 * 2 == 1 << 26
    assert "uint4" in code.functions


def test_cuts() -> None:
    assert cut_of(1 << 20, 1 << 10, f16.bytes, Gpu()) == ThreadTiling(256, 1, 8)
    assert cut_of(30, 30, 4, Gpu()) == ThreadTiling(32, 1, 2)
    assert cut_of(30, 30, 4, Gpu(), even=True) == ThreadTiling(15, 1, 2)
    assert cut_of(7, 7, 4, Gpu()) == ThreadTiling(32, 1, 1)
    assert cut_of(257 * 4, 4, 4, Gpu()) == ThreadTiling(256, 1, 4)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4))
@settings(max_examples=settings.get_profile(settings.get_current_profile_name()).max_examples)
def test_everything_has_a_schedule(shape: list[int]) -> None:
    assert gpu_schedule(added(tuple(shape)), Gpu()) is not None
