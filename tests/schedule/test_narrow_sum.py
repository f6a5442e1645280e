"""narrow_sum: sums of a few widened terms in the dtype that they had."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Alloc, Kernel, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dtype import DType, f16, f32, f64, i32
from plica.schedule import block, decompose_reduction, do, loops, narrow_sum, rfactor, split
from plica.schedule.do import Body, record as recorded
from plica.schedule.replay import kernel_of as kernel_in
from tests.conftest import Golden
from tests.schedule.hostile import refusal


def widened(
    terms: int = 40, dtype: DType = f32, wide: DType = f64, word: str = "sum", *, ends: bool = False
) -> Kernel:
    """A sum of each row of x, in a wider dtype, doubled in the end or not."""
    x = buffer("x", (3, terms), dtype)
    total = stage("s", (3,), lambda i: reduce(word, (terms,), lambda k: sc.Cast(x[i, k], wide)))  # type: ignore[arg-type]  # a combiner
    if ends:
        return kernel_of(stages((x,), (total,)))
    return kernel_of(stages((x,), (total, stage("y", (3,), lambda i: total[i] * 2.0))))


@do
def in_parts(count: int) -> Body:
    *_, k = yield loops((yield block("s")))
    _, inner = yield split(k, (None, count))
    part = yield rfactor((yield loops((yield block("s"))))[-2], 0)
    del inner
    yield narrow_sum(part)


@given(st.integers(1, 90), st.integers(1, 128))
def test_partial_sums_mean_the_same(terms: int, count: int) -> None:
    kernel = widened(terms)
    after = kernel_in(recorded(in_parts(count), kernel).module)[2]
    x = np.random.default_rng(terms).integers(-9, 9, (3, terms)).astype(np.float32)
    (before,), (found,) = (run_kernel(each, (x,)) for each in (kernel, after))
    np.testing.assert_array_equal(before, found)


def test_printed(golden: Golden) -> None:
    after = kernel_in(recorded(in_parts(8), widened()).module)[2]
    golden(show_kernel(after), "narrow_sum")
    buffers = [each.buffer for each in statements(after.body) if isinstance(each, Alloc)]
    assert sorted(each.dtype.name for each in buffers) == ["f32", "f64"]


@pytest.mark.parametrize(
    ("word", "kernel"),
    [
        ("reducer", widened(word="max")),
        ("widened", widened(dtype=f64)),
        ("widened", widened(dtype=i32)),
        ("few-terms", widened(129)),
        ("intermediate", widened(ends=True)),
        ("accepted", widened(128)),
        ("accepted", widened(5, f16, f32)),
    ],
)
def test_refusals(word: str, kernel: Kernel) -> None:
    def schedule() -> Body:
        yield narrow_sum((yield block("s")))

    assert refusal(kernel, schedule) == word


def test_refusals_of_blocks() -> None:
    def of_no_sum() -> Body:
        yield narrow_sum((yield block("y")))

    def of_an_update() -> Body:
        s = yield block("s")
        *_, k = yield loops(s)
        yield decompose_reduction(s, k)
        yield narrow_sum(s)

    assert refusal(widened(), of_no_sum) == "reduce-kinds"
    assert refusal(widened(), of_an_update) == "starts"
