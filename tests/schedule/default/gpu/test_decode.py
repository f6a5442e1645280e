"""Few rows to many keys, in parts: the same numbers by the emulator, the interpreter and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.contract import reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stages import Stages, kernel_of
from plica.ir.type.dtype import DType, bf16, f16, f32
from plica.schedule.default.gpu.attention_form import in_key_parts, shared_keys
from plica.schedule.default.gpu.attention_parts import attention_parts, part_tile
from plica.schedule.default.gpu.choose import candidates
from plica.schedule.default.gpu.decode_quad import quad_parts, quad_tile
from plica.schedule.default.gpu.decode_tile import decode_tile, lanes_for
from plica.schedule.default.gpu.decode_writer import decode_tiles
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.schedule.chains import Mask, Sizes, attention, drawn, exact

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


def in_parts(of: Stages) -> Stages:
    chain = shared_keys(of)
    assert chain is not None
    tile = decode_tile(chain, Gpu())
    assert tile is not None
    return decode_tiles(chain, tile)


def by_tensor_cores(of: Stages) -> Stages:
    chain = shared_keys(of)
    assert chain is not None
    tile = part_tile(chain, Gpu())
    assert tile is not None
    return attention_parts(chain, tile)


def from_registers(of: Stages) -> Stages:
    chain = shared_keys(of)
    assert chain is not None
    tile = quad_tile(chain, Gpu())
    assert tile is not None
    return quad_parts(chain, tile)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "mask", "dtype", "shared"),
    [
        ((4, 1, 150, 16, 16), "none", f16, 2),  # grouped queries
        pytest.param((1, 3, 70, 12, 24), "bias", f32, 1, marks=pytest.mark.slow),
        ((1, 11, 40, 40, 16), "causal", bf16, 1),  # more rows than a block has
    ],
)
def test_parts_mean_the_same(sizes: Sizes, mask: Mask, dtype: DType, shared: int) -> None:
    given = drawn(sizes, 0, mask, dtype, shared)
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    parts = in_parts(attention(sizes, mask, dtype, shared))
    emulated(fold(lower(kernel_of(parts), "gpu"), "k"), [*given, found])
    close = {f32: 1e-6, f16: 2e-3, bf16: 2e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact(given, mask), atol=close)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "mask", "dtype", "shared"),
    [
        ((4, 2, 140, 24, 40), "causal", bf16, 2),  # grouped queries, no side a multiple of 16
        pytest.param(  # more than a warp has
            (1, 21, 70, 16, 16), "bias", f16, 1, marks=pytest.mark.slow
        ),
    ],
)
def test_parts_by_tensor_cores_mean_the_same(
    sizes: Sizes, mask: Mask, dtype: DType, shared: int
) -> None:
    given = drawn(sizes, 0, mask, dtype, shared)
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    parts = by_tensor_cores(attention(sizes, mask, dtype, shared))
    emulated(fold(lower(kernel_of(parts), "gpu"), "k"), [*given, found])
    close = {f16: 2e-3, bf16: 2e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact(given, mask), atol=close)


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "mask", "dtype", "shared"),
    [
        ((8, 1, 150, 64, 64), "bias", bf16, 8),  # grouped queries, and keys that are none
        ((1, 5, 70, 96, 128), "causal", f16, 1),  # fewer rows than tensor cores multiply
    ],
)
def test_parts_from_registers_mean_the_same(
    sizes: Sizes, mask: Mask, dtype: DType, shared: int
) -> None:
    given = drawn(sizes, 0, mask, dtype, shared)
    lots, rows, _, _, columns = sizes
    found = np.full((lots, rows, columns), np.nan, np.float32).astype(dtype.numpy)
    parts = from_registers(attention(sizes, mask, dtype, shared))
    emulated(fold(lower(kernel_of(parts), "gpu"), "k"), [*given, found])
    close = {f16: 2e-3, bf16: 2e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact(given, mask), atol=close)


@pytest.mark.parametrize(
    ("sizes", "shared"),
    [((2, 1, 64, 32, 64), 2), ((9, 1, 64, 32, 64), 9), ((4, 1, 64, 40, 64), 4),
     ((4, 1, 64, 32, 96), 4), ((4, 1, 64, 160, 64), 4)],
    ids=["two rows", "nine rows", "uneven terms", "uneven columns", "wide"],
)  # fmt: skip
def test_registers_have_some_rows_of_even_sides(sizes: Sizes, shared: int) -> None:
    chain = shared_keys(attention(sizes, shared=shared))
    assert chain is not None
    assert quad_tile(chain, Gpu()) is None


def test_registers_are_for_narrow_floats() -> None:
    chain = shared_keys(attention((4, 1, 64, 32, 64), "none", f32, 4))
    assert chain is not None
    assert quad_tile(chain, Gpu()) is None


def test_threads_multiply_four_rows_and_tensor_cores_eight() -> None:
    for rows, wanted in ((4, decode_tiles), (8, quad_parts)):
        ways = [*in_key_parts(attention((8 * rows, 1, 4096, 128, 128), shared=rows), Gpu())]
        best = min(ways, key=lambda way: way[0])  # type: ignore[index]  # with a cost
        assert best[1].func is wanted  # type: ignore[index,union-attr]  # a partial


def test_no_threads_race() -> None:
    sizes: Sizes = (1, 2, 9, 4, 4)
    given = drawn(sizes, 1, "causal", f32)
    (found,) = run_kernel(lower(kernel_of(in_parts(attention(sizes, "causal", f32))), "gpu"), given)
    np.testing.assert_allclose(found, exact(given, "causal"), atol=1e-6)


def test_grouped_queries_are_rows_of_one_lot() -> None:
    chain = shared_keys(attention((8, 1, 64, 16, 16), shared=4))
    assert chain is not None
    tile = decode_tile(chain, Gpu())
    assert tile is not None
    assert (chain.size(*chain.lots), chain.size(*chain.rows), tile.rows) == (2, 4, 4)
    assert chain.bytes == 2 * 64 * (16 + 16) * 2  # keys and values are read once


@pytest.mark.parametrize("sizes", [(1, 40, 64, 32, 32), (1, 1, 64, 32, 4096)])
def test_many_rows_and_wide_values_are_left_to_others(sizes: Sizes) -> None:
    chain = shared_keys(attention(sizes))
    assert chain is not None
    assert decode_tile(chain, Gpu()) is None


def test_the_form_is_taken_for_few_rows() -> None:
    of = attention((8, 1, 4096, 128, 128))
    made = next(candidates(of, Facts((False,) * 3, (), reassociates), Gpu()))
    assert made.form.form == "split-online-softmax"


def test_a_row_is_shared_by_a_power_of_two() -> None:
    for near in (1, 2, 4, 8):
        for units in range(1, 80):
            lanes = lanes_for(near, units * near)
            assert lanes.across * lanes.turns >= units
            assert 32 % lanes.across == 0


@needs_nvrtc
def test_nothing_is_spilled() -> None:
    kernel = kernel_of(in_parts(attention((32, 8, 4096, 128, 128))))
    for _, usage in compiled(fold(lower(kernel, "gpu"), "k").text, "sm_90a").usage:
        assert usage.spilled == 0
    for way in (by_tensor_cores, from_registers):
        kernel = kernel_of(way(attention((32, 1, 4096, 128, 128), shared=8)))
        for _, usage in compiled(fold(lower(kernel, "gpu"), "k").text, "sm_90a").usage:
            assert usage.spilled == 0


def test_long_caches_that_are_read_once_are_no_tiles() -> None:
    """Threads stream what tiles of one row would wait for."""
    facts = Facts((False,) * 3, (), reassociates)
    for sizes in ((256, 1, 4096, 128, 128), (2048, 1, 150, 128, 128)):
        best = next(candidates(attention(sizes), facts, Gpu(groups=True)))
        assert best.form.form == "split-online-softmax"
