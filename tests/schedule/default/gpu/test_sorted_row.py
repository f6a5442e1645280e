"""Rows sorted by the threads of a block: numpy's order, equals in theirs, nan the greatest."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.tensor import axis, buffer
from plica.ir.op.top_k import place_of_rank
from plica.ir.type.dtype import DType, f16, f32, i32, u8
from plica.rewrite.packs.sorting import LONGEST_ROW
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.sorted_row import sorted_rows
from tests.codegen.cuda.emulate import COMPILER, run
from tests.deep import spread

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def first(rows: int, size: int, kept: int, dtype: DType, descending: bool) -> Stages:
    x, terms = buffer("x", (rows, size), dtype), (axis("m"), axis("o"))
    element = stage("y", (rows, kept), lambda i, r: place_of_rank(
        lambda at: x[i, at], sc.index(size), r, terms, descending))  # fmt: skip
    return stages((x,), (element,))


@needs_compiler
@pytest.mark.parametrize(
    ("rows", "size", "kept", "dtype", "descending"),
    spread(
        [(5, 100, 100, f32, False), (130, 33, 33, f16, True), (2, 600, 7, i32, False),
         (3, 2, 2, u8, True), (2, 700, 700, f32, True)], 1
    ),
)  # fmt: skip
def test_rows_are_in_numpys_order(
    rows: int, size: int, kept: int, dtype: DType, descending: bool
) -> None:
    compare(rows, size, kept, dtype, descending)


@needs_compiler
@pytest.mark.parametrize("kept", [7, 20])
def test_the_first_of_long_rows_are_merged_by_few_threads(kept: int) -> None:
    compare(2, 2100, kept, f32, True)


def compare(rows: int, size: int, kept: int, dtype: DType, descending: bool) -> None:
    """What is found in drawn rows beside what numpy finds."""
    random = np.random.default_rng(rows)
    x = random.integers(0, 20, (rows, size)).astype(np.float64)
    if dtype.is_float:
        some = [np.nan, np.inf, -np.inf, -0.0]
        x = np.where(random.random(x.shape) < 0.3, random.choice(some, x.shape), x - 10)
    x = x.astype(dtype.numpy)
    made = sorted_rows(first(rows, size, kept, dtype, descending), Gpu())
    assert made is not None
    found = np.full((rows, kept), -1, np.int64)
    run(fold(lower(kernel_of(made), "gpu"), "k"), [x, found])
    if descending:  # from behind, so that equals keep their order
        meant = size - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    else:
        meant = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(found, meant[:, :kept])


def test_rows_without_room_are_left_to_others() -> None:
    assert sorted_rows(first(2, 1 << 16, 5, f32, False), Gpu()) is None
    assert sorted_rows(first(2, LONGEST_ROW, 5, f32, False), Gpu()) is not None


@needs_compiler
def test_what_is_computed_first_is_sorted_by_a_block_too() -> None:
    text = (
        "import plica\nfrom plica import op\nfrom plica.script import Tensor, f32\n\n"
        "@plica.function\ndef main(x: Tensor[(70, 3), f32]) -> Tensor[(70, 3), f32]:\n"
        "    return op.sort(x * x, axis=0) + 1.0\n"
    )
    exe = plica.compile(plica.from_text(text), target="cuda-emulator", cache=False)
    x = np.random.default_rng(0).standard_normal((70, 3)).astype(np.float32)
    assert "keys" in exe.source("cuda")
    np.testing.assert_array_equal(np.asarray(exe(x)), np.sort(x * x, axis=0) + 1)
