"""Reductions over other axes than the last: vectors of columns, in parts or not, mean the same."""

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
from plica.ir.loop.stages import evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f16, f32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.column_sum import column_sums
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.schedule.default.gpu.test_split_reduction import reduced, whole

SMALL = Gpu(threads=4, warp=2, processors=500, block=4)
"""Many processors with few threads: columns of a hundred elements are worth parts."""

SHAPES = [
    ((150, 8), (True, False)), ((131, 3), (True, False)), ((3, 70, 4), (False, True, False)),
    ((2, 101, 3, 2), (False, True, False, False)), ((9, 2, 8, 6), (True, False, True, False)),
    ((1, 90, 4), (True, True, False)),
]  # fmt: skip


@settings(max_examples=5)
@given(st.sampled_from(SHAPES), st.sampled_from([("sum", f32), ("min", f16), ("max", f32)]),
       st.sampled_from([SMALL, Gpu(threads=4, warp=2, processors=1, block=8)]))  # fmt: skip
def test_columns_mean_the_same(shape: Any, kind: Any, gpu: Gpu) -> None:
    of = reduced(kind[0], shape[0], shape[1], kind[1])
    made = column_sums(of, gpu)
    assert made is not None
    x = whole(of)
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [x])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))


def test_long_columns_are_cut_into_parts_and_short_ones_are_not() -> None:
    long, short = (column_sums(reduced("sum", (size, 64), (True, False), f32), Gpu())
                   for size in (1 << 20, 100))  # fmt: skip
    assert long is not None
    assert short is not None
    assert (len(long.stages), len(short.stages)) == (2, 1)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("case", [((16_411, 40), (True, False), "sum", f32),
                                  ((5, 77, 48), (False, True, False), "max", f16)])  # fmt: skip
def test_the_code_means_the_same(case: Any) -> None:
    sizes, over, word, dtype = case
    of = reduced(word, sizes, over, dtype)
    found = next(candidates(of, Facts((False,), (), reassociates), Gpu()))
    assert found.form.form == "column-sums"
    code = fold(lower(found.kernel, "gpu"), "k")
    assert "*((const uint4*)&x" in code.text or "*((const float4*)&x" in code.text
    assert len(code.launches) == (2 if len(sizes) == 2 else 1)
    x = whole(of)
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(code, [x, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


def test_products_and_rows_are_none() -> None:
    x, w = buffer("x", (9, 40), f32), buffer("w", (40, 12), f32)
    product = stage("y", (9, 12), lambda i, j: reduce("sum", (40,), lambda k: x[i, k] * w[k, j]))
    assert column_sums(stages((x, w), (product,)), Gpu()) is None
    rows = stage("y", (9,), lambda i: reduce("sum", (40,), lambda k: x[i, k]))
    assert column_sums(stages((x,), (rows,)), Gpu()) is None


def test_a_row_by_a_matrix_is_one_that_reads_vectors_of_the_matrix() -> None:
    x, w = buffer("x", (40,), f32), buffer("w", (40, 12), f32)
    by = stage("y", (12,), lambda j: reduce("sum", (40,), lambda k: x[k] * w[k, j]))
    of = stages((x, w), (by, stage("z", (12,), lambda j: sc.Max(by[j], sc.Lit(0.0, f32)))))
    made = column_sums(of, SMALL)
    assert made is not None
    random = np.random.default_rng(0)
    given_ = [random.integers(-9, 9, n).astype(np.float32) for n in ((40,), (40, 12))]
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), given_)
    np.testing.assert_array_equal(found, evaluate_stages(of, given_))


def test_a_border_is_not_read() -> None:
    x = buffer("x", (40, 12), f32)
    ends = stage("y", (12,), lambda j: reduce(
        "max", (50,), lambda k: sc.Select(k < 40, x[k, j], sc.Lit(0.0, f32))))  # fmt: skip
    assert column_sums(stages((x,), (ends,)), Gpu()) is None


def test_sums_in_order_stay_so() -> None:
    of = reduced("sum", (90, 40), (True, False), f32)
    forms = [each.form.form for each in candidates(of, Facts((False,), (), exact), Gpu())]
    assert "column-sums" not in forms
