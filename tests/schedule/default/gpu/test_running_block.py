"""Running totals by blocks of threads mean the same along any axis, in one launch or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.contract import exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage, stage_of
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import For, statements
from plica.ir.loop.tensor import buffer, compute, prefix
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32, i32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.running_block import running_blocks
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run


def running(
    word: Any, shape: tuple[int, ...], at: int, dtype: DType, way: tuple[bool, bool] = (False, True)
) -> Stages:
    """Totals along an axis: from its end or not, with one's own place or without; doubled."""
    x = buffer("x", shape, dtype)
    back, own = way

    def element(*place: Any) -> sc.Scalar:
        return prefix(
            word, shape[at], place[at], lambda k: x[(*place[:at], k, *place[at + 1 :])],
            exclusive=not own, reverse=back,
        )  # fmt: skip

    of = compute((x,), shape, element)
    held = stage_of(buffer("held", shape, dtype), of.axes, of.body)
    return stages((x,), (held, stage("out", shape, lambda *i: held[i] + held[i])))


def drawn_values(of: Stages) -> np.ndarray[Any, Any]:  # Any: of any shape and dtype
    (x,) = of.inputs
    random = np.random.default_rng(0)
    return random.integers(-9, 9, [known(size) or 0 for size in x.shape]).astype(x.dtype.numpy)


@st.composite
def drawn(draw: st.DrawFn) -> Stages:
    shape = tuple(draw(st.lists(st.integers(1, 33), min_size=1, max_size=2)))
    word, dtype = draw(st.sampled_from([("sum", f32), ("max", f32), ("sum", i32), ("min", i32)]))
    at = draw(st.integers(0, len(shape) - 1))
    return running(word, shape, at, dtype, (draw(st.booleans()), draw(st.booleans())))


@settings(max_examples=6)
@given(drawn())
def test_blocks_mean_the_same_and_no_threads_race(of: Stages) -> None:
    made = running_blocks(of, Gpu(threads=2, warp=2, processors=9))
    assert made is not None
    x = drawn_values(of)
    (found,) = run_kernel(lower(kernel_of(made), "gpu"), [x])
    np.testing.assert_array_equal(found, evaluate_stages(of, [x]))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("word", "shape", "at", "way"),
    [
        ("sum", (3, 4100), 1, (False, True)),
        ("max", (2, 777, 5), 1, (True, False)),
        ("sum", (40_001,), 0, (False, False)),
    ],
)
def test_the_code_means_the_same(
    word: str, shape: tuple[int, ...], at: int, way: tuple[bool, bool]
) -> None:
    of = running(word, shape, at, f32, way)
    found = next(candidates(of, Facts((False,), (), reassociates), Gpu()))
    assert found.form.form == "running-blocks"
    x, out = drawn_values(of), np.full(shape, 7, np.float32)
    run(fold(lower(found.kernel, "gpu"), "k"), [x, out])
    total = {"sum": np.cumsum, "max": np.maximum.accumulate}[word]
    moved = np.flip(x, at) if way[0] else x
    meant = total(moved, axis=at)  # type: ignore[operator]  # either of them
    if not way[1]:  # places before one's own
        first = np.full_like(np.take(meant, [0], at), -np.inf if word == "max" else 0)
        meant = np.concatenate([first, np.delete(meant, -1, at)], at)
    np.testing.assert_array_equal(out, 2 * (np.flip(meant, at) if way[0] else meant))


def test_few_rows_are_cut_so_that_all_processors_have_work() -> None:
    made = running_blocks(running("sum", (1 << 20,), 0, f32), Gpu())
    assert made is not None
    blocks = [known(each.extent) or 0 for each in statements(kernel_of(made).body)
              if isinstance(each, For) and each.kind == "blockIdx.x"]  # fmt: skip
    assert len(blocks) == 2
    assert min(blocks) >= Gpu().processors


def test_totals_in_order_stay_so() -> None:
    of = running("sum", (64, 64), 1, f32)
    forms = [each.form.form for each in candidates(of, Facts((False,), (), exact), Gpu())]
    assert "running-blocks" not in forms


@pytest.mark.parametrize(("shape", "at"), [((40, 9), 1), ((50,), 0), ((3, 5, 7), 1)])
@pytest.mark.parametrize("way", [(False, True), (True, False)])
def test_rows_in_order_are_a_trace(shape: tuple[int, ...], at: int, way: tuple[bool, bool]) -> None:
    of = running("sum", shape, at, f32, way)
    found = next(candidates(of, Facts((False,), (), exact), Gpu()))
    assert found.form.form == "scan-rows"
    assert found.trace.steps
    x = drawn_values(of)
    (out,) = run_kernel(lower(found.kernel, "gpu"), [x])
    np.testing.assert_array_equal(out, evaluate_stages(of, [x]))
