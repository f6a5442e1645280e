"""Products of f32 in tiles: results are finished in registers, copies go on meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.contract import exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Le, Max, Scalar, Select, lit
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu.choose import candidates
from plica.schedule.default.gpu.form import NEITHER, can_transpose, tiled
from plica.schedule.default.gpu.machine import MAX_BLOCKS_YZ, Gpu
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.product import Blocks, ProductTile, product
from plica.schedule.default.gpu.product_form import FEW_COLUMNS, HIGH, TILES
from plica.schedule.default.gpu.shape import stages as blocks_of
from plica.schedule.default.gpu.template import product_schedule, tiled_of
from plica.schedule.default.gpu.thread_map import spread
from plica.schedule.do import Body, do, run
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.replay import begin
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.schedule.default.gpu.contractions import Case, batch, dense, image

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


def matrices(m: int, n: int, k: int) -> Stages:
    x, w = buffer("x", (m, k), f32), buffer("w", (k, n), f32)
    held = stage("held", (m, n), lambda i, j: reduce("sum", (k,), lambda t: x[i, t] * w[t, j]))

    def element(i: Scalar, j: Scalar) -> Scalar:
        return Max(held[i, j], lit(-5.0, f32))

    return stages((x, w), (held, stage("out", (m, n), element)))


@pytest.mark.parametrize("parts", [1, 2])
def test_an_epilogue_may_speak_of_places(parts: int) -> None:
    """A mask, say: causal scores are nothing above the diagonal."""
    x, w = buffer("x", (2, 5, 6), f32), buffer("w", (2, 7, 6), f32)
    held = stage("held", (2, 5, 7), lambda b, i, j: reduce(
        "sum", (6,), lambda t: x[b, i, t] * w[b, j, t]))  # fmt: skip
    out = stage("out", (2, 5, 7), lambda b, i, j: Select(
        Le(j, i), held[b, i, j], lit(float("-inf"), f32)))  # fmt: skip
    found = kernel_of(formed(stages((x, w), (held, out)), ProductTile(8, 8, 4, 2, 2), parts))
    assert found.dims == ()
    random = np.random.default_rng(0)
    left, right = (random.integers(-3, 4, shape).astype(np.float32)
                   for shape in ((2, 5, 6), (2, 7, 6)))  # fmt: skip
    (result,) = run_kernel(found, [left, right])
    seen = np.tril(np.ones((5, 7), bool))
    np.testing.assert_array_equal(result, np.where(seen, left @ right.transpose(0, 2, 1), -np.inf))


def formed(of: Stages, tile: ProductTile, parts: int = 1, *, turn: bool = False) -> Stages:
    found = operands(of)
    assert found is not None
    along = (found.along(found.left), found.along(found.right))
    turns = along if turn else NEITHER
    assert not turns[0] or can_transpose(found, found.left, "rows")
    assert not turns[1] or can_transpose(found, found.right, "columns")
    return tiled(found, tile.layout(NEITHER if turn else along), parts, turns=turns)


def scheduled(form: Stages, tile: ProductTile, gpu: Gpu | None = None) -> Kernel:
    found = product_schedule(form, gpu or Gpu(threads=8, warp=4), (tile,))
    assert found is not None
    return found[1]


def made(of: Stages, tile: ProductTile) -> KernelCode:
    return fold(lower(scheduled(formed(of, tile), tile), "gpu"), "k")


TILE = ProductTile(8, 32, 4, 2, 4)

CASES = {
    "matrices": dense((16,), 32, 8, f32, ends="bias"),
    "odd matrices": dense((9,), 21, 7, f32, turned=True),
    "batch": batch((3,), (10, 9, 6), f32),
    "several axes of batches": batch((2, 3), (10, 9, 6), f32),
    "image": image((1, 3, 7), 10, f32, ends="bias"),
    "strided image": image((2, 2, 8), 9, f32, stride=2, constant=True),
}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        *[(name, 1) for name in CASES if name not in ("batch", "image")],
        *[pytest.param(name, 1, marks=pytest.mark.slow) for name in ("batch", "image")],
        pytest.param("odd matrices", 3, marks=pytest.mark.slow),
        ("image", 3),
    ],
)
def test_tiled_products_mean_the_same(name: str, parts: int) -> None:
    case: Case = CASES[name]
    apart = hoist(formed(case.of, TILE, parts), case.constant)
    code = fold(lower(scheduled(apart.rest, TILE), "gpu"), "k")
    assert len(code.launches) == 1 + (parts > 1 or name == "strided image")
    np.testing.assert_array_equal(case.runs(apart, code), case.expected())


@needs_compiler
def test_tiles_of_few_columns_mean_the_same() -> None:
    small = CASES["strided image"]
    apart = hoist(formed(small.of, FEW_COLUMNS), small.constant)
    code = fold(lower(scheduled(apart.rest, FEW_COLUMNS), "gpu"), "k")
    np.testing.assert_array_equal(small.runs(apart, code), small.expected())


@needs_compiler
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("odd matrices", 1),
        ("batch", 2),
        pytest.param("several axes of batches", 1, marks=pytest.mark.slow),
    ],
)
def test_products_of_sides_that_are_turned_first_mean_the_same(name: str, parts: int) -> None:
    """Rows of 9 and 10 are padded to 12."""
    tile, case = ProductTile(8, 32, 4, 2, 4, ahead=1), CASES[name]
    apart = hoist(formed(case.of, tile, parts, turn=True), case.constant)
    code = fold(lower(scheduled(apart.rest, tile), "gpu"), "k")
    assert "turned" in code.functions
    np.testing.assert_array_equal(case.runs(apart, code), case.expected())


@needs_compiler
@pytest.mark.parametrize(
    ("count", "grid"),
    [((3, 2), (1, 2, 3)), ((MAX_BLOCKS_YZ + 1, 2), (2, 1, 3)), ((2, MAX_BLOCKS_YZ + 1), (1, 2, 3)),
     ((MAX_BLOCKS_YZ + 1, MAX_BLOCKS_YZ + 1), (6, 1, 1))],
)  # fmt: skip
def test_long_axes_of_a_launch_are_the_first(
    count: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    case = CASES["batch"]
    form = formed(case.of, TILE)
    every, names = blocks_of(begin(kernel_of(form)).kernel), tiled_of(form)
    assert every is not None
    assert names is not None
    found = names.blocks(fused=False)

    @do
    def whole() -> Body:
        yield spread(every[-1], every[3:-1], Gpu(threads=8, warp=4), wide=False)
        told = Blocks(found.left, found.right, found.part, None, (3, *count))
        yield product(TILE, told, (True, False))

    code = fold(lower(run(whole(), kernel_of(form), 0, {})[1].kernel, "gpu"), "k")
    assert code.launches[0].grid == grid
    if count[0] > MAX_BLOCKS_YZ:  # as it is usually is tried above
        apart = hoist(form, case.constant)
        np.testing.assert_array_equal(case.runs(apart, code), case.expected())


@needs_compiler
@pytest.mark.parametrize(
    "tile",
    [
        ProductTile(16, 32, 8, 2, 8, ahead=2, near=2, kept=True),
        ProductTile(16, 16, 4, 2, 4, ahead=1),
    ],
)
def test_products_mean_the_same(tile: ProductTile) -> None:
    m, n, k = 4 * tile.rows, tile.columns, 5 * tile.terms
    code = made(matrices(m, n, k), tile)
    assert len(code.launches) == 1
    assert not code.scratch
    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    found = np.full((m, n), -1, np.float32)
    emulated(code, [x, w, found])
    np.testing.assert_array_equal(found, np.maximum(x @ w, -5))


def over_slices(text: str) -> str:
    """The loop of a text whose threads wait for one another."""
    loops = [each.partition("\n  }\n")[0] for each in text.split("\n  for (int ")[1:]]
    return next(each for each in loops if "__syncthreads" in each)


def test_one_barrier_a_slice() -> None:
    body = over_slices(made(matrices(256, 256, 128), HIGH).functions)
    assert body.count("__syncthreads") == 1
    assert body.count("p_copy_async") == 2
    assert "p_copies_done<2>" in body


@needs_nvrtc
@pytest.mark.parametrize("tile", [HIGH, pytest.param(TILES[0], marks=pytest.mark.slow)])
def test_nothing_is_spilled(tile: ProductTile) -> None:
    cubin = compiled(made(matrices(512, 256, 256), tile).text, "sm_90")
    ((_, usage),) = cubin.usage
    assert usage.spilled == 0
    assert usage.registers * tile.threads <= Gpu().registers


@pytest.mark.parametrize(("size", "tile", "copies"), [(512, TILES[3], 0), (4096, TILES[1], 1)])
def test_sides_are_turned_where_that_is_soon_done(
    size: int, tile: ProductTile, copies: int
) -> None:
    """A transpose is as long as a side, a product as long as that and rows."""
    facts = Facts((False, False), (), reassociates)
    found = next(candidates(matrices(size, size, size), facts, Gpu()))
    shape = tiled_of(found.hoisted.rest)
    assert shape is not None
    digits = shape.digits
    assert digits["vi"] * digits["ty"] * 4 == tile.rows
    assert digits["vj"] * digits["tx"] * 4 == tile.columns
    assert len(shape.copies) == copies


def test_one_barrier_a_slice_of_copied_sides() -> None:
    found = next(candidates(matrices(4096, 4096, 4096), Facts((False, False)), Gpu()))
    text = fold(lower(found.kernel, "gpu"), "k").functions
    body = over_slices(text)
    assert body.count("__syncthreads") == 1
    assert body.count("p_copy_async") == 2


def test_the_result_is_finished_where_it_is_summed() -> None:
    found = next(candidates(matrices(256, 512, 2048), Facts((False, False)), Gpu(processors=4)))
    shape = tiled_of(found.hoisted.rest)
    assert shape is not None
    assert len(fold(lower(found.kernel, "gpu"), "k").launches) == len(shape.copies) + 1


def test_sums_are_split_where_their_order_is_free() -> None:
    of, gpu = matrices(64, 64, 4096), Gpu()
    for contract, form in ((exact, "product-tiles"), (reassociates, "split-sums")):
        assert next(candidates(of, Facts((False, False), (), contract), gpu)).form.form == form
