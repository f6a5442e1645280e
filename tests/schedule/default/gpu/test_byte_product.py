"""Products of bytes on tensor cores: every sign, size and order of the sides, exact in i32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var, const
from plica.ir.graph.module import module
from plica.ir.loop.scalar import Cast, Scalar
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f32, i8, i32, u8
from plica.ir.type.term import tensor
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.choose import GpuCandidate
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run
from tests.deep import spread

Shape = tuple[int, int, int]


def product(shape: Shape, left: DType, right: DType, turned: bool) -> Stages:
    """A product of bytes, less 7; neighbours of the right side are terms, or columns."""
    m, k, n = shape
    x, w = buffer("x", (m, k), left), buffer("w", (n, k) if turned else (k, n), right)

    def element(i: Scalar, j: Scalar) -> Scalar:
        def term(t: Scalar) -> Scalar:
            return Cast(x[i, t], i32) * Cast(w[(j, t) if turned else (t, j)], i32)

        return reduce("sum", (k,), term)

    total = stage("total", (m, n), element)
    return stages((x, w), (total, stage("y", (m, n), lambda i, j: total[i, j] - 7)))


def values(shape: Shape, left: DType, right: DType, turned: bool) -> tuple[list[Any], Any]:
    """Both sides, least and greatest bytes among them, and the result."""
    m, k, n = shape
    random = np.random.default_rng(0)
    sides = []
    for dtype, size in ((left, (m, k)), (right, (n, k) if turned else (k, n))):
        span = np.iinfo(dtype.numpy)
        sides.append(random.integers(span.min, span.max, size, dtype.numpy, endpoint=True))
    x, w = (each.astype(np.int32) for each in sides)
    return sides, x @ (w.T if turned else w) - 7


def chosen(of: Stages, *, together: bool = False) -> GpuCandidate:
    every = candidates(of, Facts((False, False), (), reassociates), Gpu(groups=together))
    form = "wgmma-tiles" if together else "tensor-core-tiles"
    return next(each for each in every if each.form.form == form)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("shape", "left", "right", "turned"),
    [((48, 96, 40), u8, i8, True), ((41, 67, 50), i8, u8, False)],
)
def test_products_of_bytes_are_exact(shape: Shape, left: DType, right: DType, turned: bool) -> None:
    found = chosen(product(shape, left, right, turned))
    sides, meant = values(shape, left, right, turned)
    out = np.zeros(meant.shape, np.int32)
    run(fold(lower(found.kernel, "gpu"), "k"), [*sides, out])
    np.testing.assert_array_equal(out, meant)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(("left", "right"), spread([(i8, u8), (u8, i8)], 1))
def test_four_warps_multiply_bytes_exactly(left: DType, right: DType) -> None:
    """Rows and columns that tiles do not divide; the last slice of terms is not full."""
    shape = (70, 176, 72)
    found = chosen(product(shape, left, right, True), together=True)
    sides, meant = values(shape, left, right, True)
    out = np.zeros(meant.shape, np.int32)
    code = fold(lower(found.kernel, "gpu"), "k")
    assert f"p_products_{left.name}_{right.name}_" in code.functions
    run(code, [*sides, out])
    np.testing.assert_array_equal(out, meant)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
def test_a_weight_of_i32_that_holds_bytes_is_one_of_bytes() -> None:
    (x, w), meant = values((48, 96, 40), u8, i8, False)
    given_ = Var(Name("x"), tensor((48, 96), "u8"))
    wide = Apply("cast", (given_,), (("dtype", i32),))
    times = Apply("matmul", (wide, const(w.astype(np.int32))))
    main = Var(Name("main"), None)
    whole = module({main: Function((), (), (given_,), None, times)}, main)
    made = plica.compile(whole, target="cuda-emulator", cache=False)
    assert "p_mma_u8_i8" in made.source("cuda")
    np.testing.assert_array_equal(np.asarray(made(x)) - 7, meant)


@pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")
@pytest.mark.parametrize("together", spread([True, False], 1))
def test_nothing_is_spilled(together: bool) -> None:
    found = chosen(product((4096, 4096, 4096), u8, i8, True), together=together)
    text = fold(lower(found.kernel, "gpu"), "k").text
    cubin = compiled(text, "sm_90a" if together else "sm_90")
    ((_, usage),) = cubin.usage
    assert usage.spilled == 0
    assert "serializ" not in cubin.log


def test_bytes_with_what_is_no_byte_are_no_such_product() -> None:
    x, w = buffer("x", (64, 64), i8), buffer("w", (64, 64), f32)
    dense = stage("y", (64, 64), lambda i, j: reduce(
        "sum", (64,), lambda k: Cast(x[i, k], f32) * w[j, k]))  # fmt: skip
    facts = Facts((False, False), (), reassociates)
    forms = [each.form.form for each in candidates(stages((x, w), (dense,)), facts, Gpu())]
    assert "tensor-core-tiles" not in forms
