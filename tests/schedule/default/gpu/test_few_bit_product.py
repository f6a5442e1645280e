"""Weights of few bits on tensor cores: the same numbers by the emulator and numpy, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.contract import exact, reassociates
from plica.ir.loop.scalar import Buffer, Cast, Load
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, kernel_of, stages, stages_of
from plica.ir.loop.tensor import buffer
from plica.ir.op.bitserial import packed_dense
from plica.ir.type.dtype import DType, bf16, f16, f32, i32, u8
from plica.schedule.default.gpu.choose import candidates
from plica.schedule.default.gpu.few_bit_product import (
    FEW_BIT_WARPS,
    MOST_ROWS,
    FewBitTile,
    few_bit_cost,
    few_bits_of,
)
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run as emulated

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")

Sizes = tuple[int, int, int, int, int]
"""Rows, columns, depth, bits and group."""


def product(sizes: Sizes, dtype: DType = f16) -> Stages:
    """A sum and what rounds it, as the fuser makes them."""
    rows, columns, depth, bits, group = sizes
    x, w = buffer("x", (rows, depth), dtype), buffer("w", (columns, depth * bits // 32), i32)
    scale = buffer("scale", (columns, depth // group), dtype)
    zero = buffer("zero", (columns, depth // group), u8)
    assert packed_dense.compute is not None
    (whole,) = stages_of(packed_dense.compute({"bits": bits}, x, w, scale, zero)).stages  # type: ignore[arg-type]  # a tensor expression
    assert isinstance(whole, Each)
    if dtype is f32:
        return stages((x, w, scale, zero), (whole,))
    assert isinstance(whole.value, Cast)
    held = Buffer(Name("sum"), whole.out.shape, f32)
    last = Each(whole.out, whole.axes, Cast(Load(held, whole.axes), dtype))
    return stages((x, w, scale, zero), (Each(held, whole.axes, whole.value.value), last))


def by_warps(of: Stages) -> Stages:
    """The form, which must be the first."""
    found = next(candidates(of, Facts((False,) * 4, (), reassociates), Gpu()))
    assert found.form.form == "few-bit-warps"
    return found.form.stages


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((1, 40, 256, 4, 32), f16),
        ((3, 17, 1088, 4, 64), bf16),  # rows and words that tiles do not divide
        ((9, 20, 64, 2, 16), f16),  # two groups in a vector of words
        ((2, 16, 320, 8, 320), bf16),
    ],
)
def test_warps_mean_the_same(sizes: Sizes, dtype: DType) -> None:
    rows, columns, depth, bits, group = sizes
    rng, several = np.random.default_rng(1), 32 // bits
    x = rng.standard_normal((rows, depth)).astype(dtype.numpy)
    w = rng.integers(-(2**31), 2**31, (columns, depth // several)).astype(np.int32)
    scale = (rng.random((columns, depth // group)) * 0.1).astype(dtype.numpy)
    zero = rng.integers(0, 256, (columns, depth // group)).astype(np.uint8)
    found = np.full((rows, columns), np.nan, np.float32).astype(dtype.numpy)
    code = fold(lower(kernel_of(by_warps(product(sizes, dtype))), "gpu"), "k")
    emulated(code, [x, w, scale, zero, found])
    shifts = np.arange(several, dtype=np.int32) * bits
    numbers = (w[:, :, None] >> shifts & 2**bits - 1).reshape(columns, depth)
    points, scales = (np.repeat(each.astype(np.float32), group, 1) for each in (zero, scale))
    weight = ((numbers - points) * scales).astype(np.float32).astype(dtype.numpy)
    wanted = x.astype(np.float64) @ weight.astype(np.float64).T
    near = {f16: 1e-3, bf16: 1e-2}[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=near)


def test_few_blocks_have_more_warps() -> None:
    def warps(columns: int) -> int:
        found = few_bits_of(in_free_order(product((1, columns, 4096, 4, 128))))
        assert found is not None
        return min(FEW_BIT_WARPS, key=lambda n: few_bit_cost(found, FewBitTile(n), Gpu()))

    assert [warps(each) for each in (256, 4096, 28672)] == [16, 16, 4]


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((MOST_ROWS + 1, 40, 256, 4, 32), f16), ((1, 40, 256, 4, 32), f32)],
    ids=["rows", "f32"],
)
def test_others_are_left_to_others(sizes: Sizes, dtype: DType) -> None:
    assert few_bits_of(product(sizes, dtype)) is None


def test_whoever_wants_terms_in_order_gets_them_so() -> None:
    found = next(candidates(product((1, 40, 256, 4, 32)), Facts((False,) * 4, (), exact), Gpu()))
    assert found.form.form != "few-bit-warps"


@needs_nvrtc
def test_nothing_is_spilled() -> None:
    of = by_warps(product((MOST_ROWS, 4096, 4096, 4, 128)))
    made = compiled(fold(lower(kernel_of(of), "gpu"), "k").text, "sm_80")
    assert all(each.spilled == 0 for _, each in made.usage)
