"""Products of f32 on tensor cores, each of which is three, and tiles of few rows or columns."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.contract import approx, reassociates
from plica.ir.loop.scalar import Cast, Scalar
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f16, f32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.form import tiled
from plica.schedule.default.gpu.product_form import NARROW_WARPS, PART_WARPS, product_of
from plica.schedule.default.gpu.template import tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.deep import spread

FACTS = Facts((False, False), (), approx(1e-5))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def product(shape: tuple[int, int, int], dtype: DType, turned: bool) -> Stages:
    m, k, n = shape
    x, w = buffer("x", (m, k), dtype), buffer("w", (n, k) if turned else (k, n), dtype)

    def element(i: Scalar, j: Scalar) -> Scalar:
        def term(t: Scalar) -> Scalar:
            one, other = x[i, t], w[(j, t) if turned else (t, j)]
            return one * other if dtype is f32 else Cast(one, f32) * Cast(other, f32)

        return reduce("sum", (k,), term)

    total = stage("total", (m, n), element)
    return stages((x, w), (total, stage("y", (m, n), lambda i, j: total[i, j] - 7)))


def multiplied(of: Stages, warps: Warps, parts: int = 1) -> float:
    """How far off a product in tiles of some warps is, of the greatest of its results."""
    found = product_of(of, FACTS, 4)
    assert found is not None
    along = (found.along(found.left), found.along(found.right))
    made = (
        tiled(found, warps.layout((True, True)), parts)
        if warps.octet == 4
        else tiled(found, warps.layout(along))
    )
    scheduled = tensor_core_schedule(made, Gpu(), (warps,))
    assert scheduled is not None
    random = np.random.default_rng(0)
    sides = [random.standard_normal([each.value for each in one.shape]).astype(one.dtype.numpy)  # type: ignore[attr-defined]  # known sizes
             for one in of.inputs]  # fmt: skip
    x, w = (each.astype(np.float64) for each in sides)
    meant = x @ (w.T if x.shape[1] == w.shape[1] else w) - 7
    out = np.full(meant.shape, np.nan, np.float32)
    run(fold(lower(scheduled[1], "gpu"), "k"), [*sides, out])
    return float(np.abs(out - meant).max() / np.abs(meant).max())


@needs_compiler
@pytest.mark.parametrize(
    ("number", "shape", "turned", "parts"),
    spread(
        [(4, (33, 67, 50), True, 1), (3, (70, 150, 41), False, 2), (7, (9, 67, 130), True, 1)], 1
    ),
)
def test_products_in_parts_are_as_exact_as_others(
    number: int, shape: tuple[int, int, int], turned: bool, parts: int
) -> None:
    assert multiplied(product(shape, f32, turned), PART_WARPS[number], parts) < 2e-6


@needs_compiler
@pytest.mark.parametrize(("number", "turned"), spread([(0, True), (2, False), (1, False)], 1))
def test_tiles_of_few_rows_or_columns(number: int, turned: bool) -> None:
    shape = (13, 100, 70) if NARROW_WARPS[number].down == 1 else (70, 100, 10)
    assert multiplied(product(shape, f16, turned), NARROW_WARPS[number]) < 1e-5


def test_sums_in_another_order_alone_are_no_products_in_parts() -> None:
    of = product((1024, 1024, 1024), f32, True)
    forms = [
        next(candidates(of, Facts((False, False), (), each), Gpu())).form.form
        for each in (approx(1e-4), reassociates)
    ]
    assert forms[0] == "tensor-core-parts"
    assert forms[1] in ("product-tiles", "split-sums")
