"""Reductions of rows of any length, several of a block, mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.contract import exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f16, f32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.row_sum import row_sums, staged_sums
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.schedule.default.gpu.test_split_reduction import reduced, whole

SHAPES = [
    ((7, 45), (False, True)), ((3, 5, 33), (False, False, True)), ((40, 34), (False, True)),
    ((5, 19, 2), (False, True, True)), ((2, 6, 3, 8), (False, True, False, True)),
    ((1, 300), (True, True)), ((4, 283), (False, True)),
]  # fmt: skip
GPUS = [Gpu(threads=8, warp=8, processors=2), Gpu(threads=64, processors=1)]


@settings(max_examples=5)
@given(st.sampled_from(SHAPES), st.sampled_from([("sum", f32), ("min", f16), ("max", f32)]),
       st.sampled_from(GPUS))  # fmt: skip
def test_rows_mean_the_same(shape: Any, kind: Any, gpu: Gpu) -> None:
    of = reduced(kind[0], shape[0], shape[1], kind[1])
    made = row_sums(of, gpu)
    if made is None:  # too few threads for what is before and behind vectors
        assert gpu.threads < 16
        return
    x = whole(of)
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [given_])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("case", [((301, 1001), "max", f16, True), ((2003, 57), "sum", f32, False),
                                  ((500, 1280), "min", f16, True)])  # fmt: skip
def test_the_code_means_the_same(case: Any) -> None:
    """Odd rows in vectors that begin where memory does; extremes of f16 by shuffles of f32."""
    sizes, word, dtype, vectors = case
    of = reduced(word, sizes, (False, True), dtype)
    found = next(candidates(of, Facts((False,), (), reassociates), Gpu()))
    assert found.form.form == "row-sums"
    code = fold(lower(found.kernel, "gpu"), "k")
    assert ("*((const uint4*)&x" in code.text) == vectors
    assert "__shfl_xor_sync" in code.text
    x = whole(of)
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(code, [x, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


def test_staged_rows_mean_the_same() -> None:
    of = reduced("max", (241, 35), (False, True), f16)
    made = staged_sums(of, Gpu(threads=16, warp=8, processors=1, block=32, shared=8000))
    assert made is not None
    x = whole(of)
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [given_])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))


def test_products_and_columns_are_none() -> None:
    x, w = buffer("x", (9, 40), f32), buffer("w", (40,), f32)
    product = stage("y", (9,), lambda i: reduce("sum", (40,), lambda k: x[i, k] * w[k]))
    assert row_sums(stages((x, w), (product,)), Gpu()) is None
    columns = stage("y", (40,), lambda i: reduce("sum", (9,), lambda k: x[k, i]))
    assert row_sums(stages((x,), (columns,)), Gpu()) is None


def test_windows_and_borders_are_none() -> None:
    """What a window has is read for others, too; and there is nothing at a border."""
    x = buffer("x", (9, 40), f32)
    pool = stage("y", (9, 38), lambda i, j: reduce("max", (3,), lambda k: x[i, j + k]))
    assert row_sums(stages((x,), (pool,)), Gpu()) is None
    ends = stage("y", (9,), lambda i: reduce(
        "max", (50,), lambda k: sc.Select(k < 40, x[i, k], sc.Lit(0.0, f32))))  # fmt: skip
    assert row_sums(stages((x,), (ends,)), Gpu()) is None


def test_short_rows_are_a_threads_own() -> None:
    assert row_sums(reduced("sum", (900, 20), (False, True), f32), Gpu()) is None


def test_sums_in_order_stay_so() -> None:
    of = reduced("sum", (90, 41), (False, True), f32)
    forms = [each.form.form for each in candidates(of, Facts((False,), (), exact), Gpu())]
    assert "row-sums" not in forms


def test_rows_of_a_longer_tensor_do_not_follow_one_another() -> None:
    """A slice that begins at 0 is read at the axes alone; its rows lie further apart."""
    gpu = Gpu(threads=16, warp=8, processors=1, block=32, shared=8000)

    def prefixes(rows: int, length: int) -> Stages:
        x = buffer("x", (rows, length + 2), f16)
        most = stage("y", (rows,), lambda i: reduce("max", (length,), lambda k: x[i, k]))
        return stages((x,), (most,))

    assert staged_sums(prefixes(241, 35), gpu) is None
    of = prefixes(5, 73)
    made, x = row_sums(of, gpu), whole(of)
    assert made is not None
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [x])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))
