"""Reductions of short rows through shared memory mean the same."""

from __future__ import annotations

import numpy as np

from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import f16
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.staged_sum import staged_sums
from tests.schedule.default.gpu.test_split_reduction import reduced, whole

SMALL = Gpu(threads=16, warp=8, processors=1, block=32, shared=8000)


def test_staged_rows_mean_the_same() -> None:
    of = reduced("max", (241, 35), (False, True), f16)
    made = staged_sums(of, SMALL)
    assert made is not None
    x = whole(of)
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [given_])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))


def test_rows_of_a_longer_tensor_do_not_follow_one_another() -> None:
    x = buffer("x", (241, 37), f16)
    most = stage("y", (241,), lambda i: reduce("max", (35,), lambda k: x[i, k]))
    assert staged_sums(stages((x,), (most,)), SMALL) is None
