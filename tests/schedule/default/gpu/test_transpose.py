"""Transposes through a tile that threads share: the same numbers, no bank met twice."""

from __future__ import annotations

import numpy as np
import pytest

import plica.schedule.default.gpu.transpose as of_turn
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import defined
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, compute
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu import Gpu, gpu_schedule
from plica.schedule.default.gpu.shape import stages
from plica.schedule.default.gpu.transpose import transpose_of
from plica.schedule.replay import begin


def across(n: int, between: int, m: int) -> Kernel:
    x = buffer("x", (n, between, m), f32)
    return defined(compute((x,), (m, between, n), lambda i, b, j: x[j, b, i] + x[j, b, i]))


@pytest.mark.parametrize("sizes", [(64, 1, 32), (40, 2, 50)], ids=str)
def test_transposes_mean_the_same(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter would tell a barrier that is missing."""
    monkeypatch.setattr(of_turn, "LEAST", 0)
    made = gpu_schedule(across(*sizes), Gpu(processors=sizes[0]))
    assert made is not None
    assert "storage_align" in made[0].to_python()
    x = np.random.default_rng(0).standard_normal(sizes, np.float32)
    (found,) = run_kernel(lower(made[1], "gpu"), [x])
    np.testing.assert_array_equal(found, 2 * x.transpose(2, 1, 0))


@pytest.mark.parametrize("columns", [512, 513, 545])
def test_the_tile_has_rows_that_meet_in_no_bank(columns: int) -> None:
    made = gpu_schedule(across(256, 3, columns), Gpu())
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    assert code.launches[0].shared == 32 * 33 * 4
    assert "* 33)" in code.functions
    assert "__syncthreads" in code.functions


@pytest.mark.parametrize(
    ("sizes", "why"),
    [((64, 1, 64), "few elements"), ((16, 64, 512), "short rows"), ((512, 1, 16), "few rows")],
)
def test_other_work_has_no_tile(sizes: tuple[int, int, int], why: str) -> None:
    kernel = begin(across(*sizes)).kernel
    every = stages(kernel)
    assert every is not None
    assert transpose_of(kernel, every[0]) is None, why
