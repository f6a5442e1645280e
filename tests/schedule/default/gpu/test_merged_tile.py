"""Sorted runs merged in tiles: what numpy's stable order gives, and what is left to others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.tensor import buffer
from plica.ir.op.order import merged_place
from plica.ir.type.dtype import DTYPES, DType, f16, f32, i32
from plica.rewrite.packs.sorting import LONGEST_ROW
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.merged_tile import merged_tiles
from tests.codegen.cuda.emulate import COMPILER, run
from tests.deep import spread

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")

SMALL = Gpu(threads=32)
"""Blocks of few threads: tiles of 512 places."""


def merging(shape: tuple[int, ...], width: int, dtype: DType, descending: bool) -> Stages:
    """The places of merged runs, and beside them the keys that are there."""
    x = buffer("x", shape, dtype)
    made = stage("y", shape, lambda *i: x[(*i[:-1], merged_place(x, i, width, descending))])
    return stages((x,), (made,))


def in_order(x: Any, descending: bool) -> Any:
    """Numpy's stable order, from behind where it descends."""
    if not descending:
        return np.argsort(x, -1, kind="stable")
    return x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "width", "dtype", "descending"),
    spread(
        [((2, 1500), 512, f32, False), ((1025,), 256, f16, True), ((3, 2, 700), 512, i32, True),
         ((2, 3000), 1280, f32, True), ((1, 2048), 1024, i32, False)], 2
    ),
)  # fmt: skip
def test_tiles_are_what_runs_become(
    shape: tuple[int, ...], width: int, dtype: DType, descending: bool
) -> None:
    random = np.random.default_rng(width)
    x = random.integers(-9, 9, shape).astype(np.float64)
    if dtype.is_float:
        some = random.choice([np.nan, np.inf, -np.inf, -0.0], shape)
        x = np.where(random.random(shape) < 0.3, some, x)
    x = x.astype(dtype.numpy)
    for at in range(0, shape[-1], width):
        part = x[..., at : at + width].copy()
        x[..., at : at + width] = np.take_along_axis(part, in_order(part, descending), -1)
    made = merged_tiles(merging(shape, width, dtype, descending), SMALL)
    assert made is not None
    found = np.zeros(shape, dtype.numpy)
    run(fold(lower(kernel_of(made), "gpu"), "k"), [x, found])
    for at in range(0, shape[-1], 2 * width):
        part = x[..., at : at + 2 * width]
        meant = np.take_along_axis(part, in_order(part, descending), -1)
        np.testing.assert_array_equal(found[..., at : at + 2 * width], meant)


def test_other_stages_and_runs_that_tiles_do_not_divide_are_left_to_others() -> None:
    assert merged_tiles(merging((2, 1500), 100, f32, False), SMALL) is None
    x = buffer("x", (2, 1500), f32)
    assert (
        merged_tiles(stages((x,), (stage("y", (2, 1500), lambda *i: x[i] + 1.0),)), Gpu()) is None
    )
    wide = stage(
        "y", (9, 4096), lambda n, k: x[0, merged_place(x, (sc.index(1), k), 512, False)] + n
    )
    assert merged_tiles(stages((x,), (wide,)), SMALL) is None


@needs_compiler
@pytest.mark.parametrize(
    ("call", "dtype"),
    spread([("op.argsort(x)", "f32"), ("op.topk(x, k=2500)[1]", "f16"), ("op.argsort(x)", "u64"),
            ("op.argsort(x, descending=True)", "i32")], 1),
)  # fmt: skip
def test_long_rows_are_in_numpys_order(call: str, dtype: str) -> None:
    text = (
        f"import plica\nfrom plica import op\nfrom plica.script import Tensor, {dtype}\n\n"
        f"@plica.function\ndef main(x: Tensor[(2, {LONGEST_ROW + 300}), {dtype}]):\n"
        f"    return {call}\n"
    )
    exe = plica.compile(plica.from_text(text), target="cuda-emulator", cache=False)
    random = np.random.default_rng(7)
    (kind,) = (each.numpy for each in DTYPES if each.name == dtype)
    x = random.integers(0, 500, (2, LONGEST_ROW + 300)).astype(kind)
    meant = in_order(x, "topk" in call or "descending" in call)
    found: Any = exe(x)
    np.testing.assert_array_equal(found, meant[:, : found.shape[1]])
