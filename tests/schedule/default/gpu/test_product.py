"""Products of f32 in tiles: results are finished in registers, copies go on meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import Code, fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.dtype import f32
from plica.ir.scalar import Max, Scalar, lit
from plica.ir.tensor import Compute, buffer, compute, reduce
from plica.schedule.default.contraction import Work, bared, contraction
from plica.schedule.default.gpu.choose import HIGH, TILES, contracted, tile_for
from plica.schedule.default.gpu.form import ProductForm, product_form
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.do import run
from tests.codegen.cuda.emulate import COMPILER
from tests.codegen.cuda.emulate import run as emulated

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


def matrices(m: int, n: int, k: int) -> Compute:
    x, w = buffer("x", (m, k), f32), buffer("w", (k, n), f32)

    def element(i: Scalar, j: Scalar) -> Scalar:
        return Max(reduce("sum", (k,), lambda t: x[i, t] * w[t, j]), lit(-5.0, f32))

    return compute((x, w), (m, n), element)


def formed(of: Compute, tile: Tile) -> ProductForm:
    found = contraction(bared(Work(of)))
    assert found is not None
    return product_form(found, tile, 1)


def made(of: Compute, tile: Tile) -> Code:
    form = formed(of, tile)
    schedule = product(tile, form.labels, form.along, 1, fused=True)
    return fold(lower(run(schedule, form.kernel, 0, {})[1].kernel, "gpu"), "k")


@needs_compiler
@pytest.mark.parametrize(
    "tile", [Tile(16, 32, 8, 2, 8, ahead=2, near=2, kept=True), Tile(16, 16, 4, 2, 4, ahead=1)]
)
def test_products_mean_the_same(tile: Tile) -> None:
    m, n, k = 4 * tile.rows, tile.columns, 5 * tile.terms
    code = made(matrices(m, n, k), tile)
    assert len(code.launches) == 1
    assert not code.scratch
    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    found = np.full((m, n), -1, np.float32)
    emulated(code, [x, w, found])
    np.testing.assert_array_equal(found, np.maximum(x @ w, -5))


def test_one_barrier_a_slice() -> None:
    text = made(matrices(256, 256, 128), HIGH).functions
    loop = text[text.index("for (int k") :]
    body = loop[: loop.index("\n  }\n")]
    assert body.count("__syncthreads") == 1
    assert body.count("p_copy_async") == 2
    assert "p_copies_done<2>" in body


@needs_nvrtc
@pytest.mark.parametrize("tile", [TILES[0], HIGH])
def test_nothing_is_spilled(tile: Tile) -> None:
    cubin = compiled(made(matrices(512, 256, 256), tile).text, "sm_90")
    ((_, usage),) = cubin.usage
    assert usage.spilled == 0
    assert usage.registers * tile.threads <= Gpu().registers


def test_sizes_that_the_tile_does_not_divide_are_not_exact() -> None:
    assert formed(matrices(32, 32, 16), Tile(16, 16, 4, 2, 4)).exact
    assert not formed(matrices(30, 32, 16), Tile(16, 16, 4, 2, 4)).exact


@pytest.mark.parametrize(("size", "tile"), [(2048, HIGH), (8192, TILES[0])])
def test_high_tiles_where_there_are_few(size: int, tile: Tile) -> None:
    found = contraction(bared(Work(matrices(size, size, size))))
    assert found is not None
    assert tile_for(found, Gpu()) == (tile, 1)


def test_the_result_is_finished_where_it_is_summed() -> None:
    found = contracted(Work(matrices(256, 512, 2048)), (False, False), Gpu(processors=4))
    assert found is not None
    assert len(fold(lower(found.kernel, "gpu"), "k").launches) == 1
