"""Rows that a block keeps, along any axes and of any length, mean the same, and no threads race."""

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
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f16, f32, f64
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.row_block import cut_of, kept_rows, staged_cut, staged_rows
from plica.schedule.default.gpu.row_passes import row_passes
from plica.schedule.default.gpu.row_writer import RowWriter
from plica.schedule.form import Facts
from tests.codegen.cuda.emulate import COMPILER, run

SMALL = Gpu(threads=4, warp=2, processors=3, shared=1600, block=8)
"""So little that of three hundred elements some are in registers, some shared, some read again."""


def normed(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType = f32, weight: int | None = None
) -> Stages:
    """Elements less the mean of their row, by the root of the sum of squares, and weights: one for
    each column, or as many as told."""
    x, w = buffer("x", shape, dtype), buffer("w", (weight or shape[-1],), f32)
    left = [n for n in range(len(shape)) if n not in axes]
    extents = tuple([shape[n] for n in axes])

    def place(rows: tuple[Any, ...], terms: tuple[Any, ...]) -> tuple[Any, ...]:
        at = {**dict(zip(left, rows, strict=True)), **dict(zip(axes, terms, strict=True))}
        return tuple([at[n] for n in range(len(shape))])

    def own(of: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([of[n] for n in left])

    rows = tuple([shape[n] for n in left])
    total = stage("total", rows, lambda *i: reduce(
        "sum", extents, lambda *k: sc.Cast(sc.Cast(x[place(i, k)], f32), f64)))  # fmt: skip
    mean = stage("mean", rows, lambda *i: sc.Cast(total[i], f32) / float(np.prod(extents)))
    away = stage("away", shape, lambda *i: sc.Cast(x[i], f32) - mean[own(i)])
    power = stage("power", rows, lambda *i: reduce(
        "sum", extents, lambda *k: away[place(i, k)] * away[place(i, k)]))  # fmt: skip
    root = stage("root", rows, lambda *i: sc.Intrinsic("sqrt", (power[i] + 1.0,)))
    out = stage("out", shape, lambda *i: sc.Cast(
        away[i] / root[own(i)] * w[0 if weight else i[-1]], dtype))  # fmt: skip
    return stages((x, w), (total, mean, away, power, root, out))


def drawn_values(of: Stages) -> list[Any]:  # Any: arrays of any shape and dtype
    random = np.random.default_rng(0)
    return [random.integers(-4, 5, [known(size) or 0 for size in each.shape])
            .astype(each.dtype.numpy) for each in of.inputs]  # fmt: skip


def interpreted(made: Stages, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    """What the kernel gives: it may see arrays in another shape of the same elements."""
    given_ = [array.reshape([known(size) or 0 for size in each.shape])
              for array, each in zip(arrays, made.inputs, strict=True)]  # fmt: skip
    (out,) = run_kernel(lower(kernel_of(made), "gpu"), given_)
    return out.reshape(shape)


@st.composite
def drawn(draw: st.DrawFn) -> Stages:
    shape = tuple(draw(st.lists(st.integers(2, 13), min_size=2, max_size=3)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1))
    return normed(shape, tuple(sorted(axes)), draw(st.sampled_from((f32, f16))))


@settings(max_examples=8)
@given(drawn())
def test_rows_along_any_axes_mean_the_same(of: Stages) -> None:
    found = row_passes(of)
    assert found is not None
    made = kept_rows(of, SMALL, columns=found.beside > 1)
    assert made is not None
    arrays = drawn_values(of)
    meant = evaluate_stages(of, arrays)
    found_ = interpreted(made, arrays, meant.shape)
    np.testing.assert_allclose(found_, meant, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("length", [263, 320])
def test_what_has_no_room_is_read_again(length: int) -> None:
    of = normed((2, length), (1,))
    cut = cut_of(2, length, 1, 4, 1, 1, SMALL)
    assert (cut.registers + cut.shared) * cut.group * cut.step < length // cut.step * cut.step
    assert cut.registers > 0 < cut.shared
    made = kept_rows(of, SMALL, columns=False)
    assert made is not None
    arrays = drawn_values(of)
    out = interpreted(made, arrays, (2, length))
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("shape", "axes", "form", "dtype"),
    [((5, 5003), (1,), "kept-rows", f16), ((3, 419), (1,), "kept-rows", f16),
     ((3, 527), (1,), "kept-rows", f16), ((267, 301), (1,), "kept-rows", f16),
     ((90, 400), (0,), "kept-columns", f32), ((2, 20, 34), (1,), "kept-columns", f16)],
)  # fmt: skip
def test_the_code_means_the_same(
    shape: tuple[int, ...], axes: tuple[int, ...], form: str, dtype: DType
) -> None:
    """Rows of an odd length begin at no multiple of a vector; threads have two columns."""
    of = normed(shape, axes, dtype, weight=1)
    found = next(candidates(of, Facts((False, False), (), reassociates), Gpu()))
    assert found.form.form == form
    arrays, out = drawn_values(of), np.full(shape, 7, dtype.numpy)
    code = fold(lower(found.kernel, "gpu"), "k")
    assert ("__syncthreads" in code.text) == (
        shape not in [(267, 301), (3, 419)]
    )  # a warp has a row
    assert ("*((const uint4*)&x" in code.text) == (form == "kept-rows")
    assert ("*((const unsigned int*)&x" in code.text) == (shape[-1] == 34)
    run(code, [*arrays, out])
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=2e-3, atol=2e-3)


@settings(max_examples=4)
@given(st.integers(6, 40), st.integers(3, 70), st.sampled_from((f32, f16)))
def test_rows_that_warps_keep_share_blocks(rows: int, length: int, dtype: DType) -> None:
    """Of any number and length: the last block has fewer, and the last threads nothing."""
    gpu = Gpu(processors=2, threads=64)
    of = normed((rows, length), (1,), dtype)
    assert cut_of(rows, length, 1, dtype.bytes, 1, 1, gpu).high > 1
    made = kept_rows(of, gpu, columns=False)
    assert made is not None
    arrays = drawn_values(of)
    out = interpreted(made, arrays, (rows, length))
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=2e-3, atol=2e-3)


STAGING = Gpu(processors=1, threads=16, warp=8, shared=8000, block=32)


@settings(max_examples=5)
@given(st.integers(9, 40), st.integers(5, 41), st.sampled_from((f32, f16)))
def test_rows_go_through_shared_memory(rows: int, length: int, dtype: DType) -> None:
    """Wherever a block's rows begin, and however many the last one has: nobody writes others'."""
    of = normed((rows, length), (1,), dtype)
    found, cut = row_passes(of), staged_cut(rows, length, dtype.bytes, STAGING)
    assert found is not None
    assert cut is not None
    made = RowWriter(of, found, cut, length).stages()
    arrays = drawn_values(of)
    out = interpreted(made, arrays, (rows, length))
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=2e-3, atol=2e-3)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(("shape", "dtype"), [((555, 53), f16), ((701, 33), f32)])
def test_the_code_of_staged_rows_means_the_same(shape: tuple[int, ...], dtype: DType) -> None:
    """Vectors begin where memory does, and weights are read by neighbours all the same."""
    of = normed(shape, (1,), dtype)
    gpu = Gpu(processors=2)
    found = next(candidates(of, Facts((False, False), (), reassociates), gpu))
    assert found.form.form == "staged-rows"
    code = fold(lower(found.kernel, "gpu"), "k")
    assert "*((const uint4*)&x" in code.text
    arrays, out = drawn_values(of), np.full(shape, 7, dtype.numpy)
    run(code, [*arrays, out])
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(90001, 64), (901, 33), (90001, 901)])
def test_rows_of_vectors_few_rows_and_rows_of_whole_warps_are_not_staged(
    shape: tuple[int, int],
) -> None:
    assert staged_rows(normed(shape, (1,), f16), Gpu()) is None


def test_exponentials_that_threads_hold_are_made_once() -> None:
    """One in the loop over what a thread has, one in what only some threads have."""
    x = buffer("x", (12, 33), f32)
    power = stage("power", (12, 33), lambda i, j: sc.Intrinsic("exp", (x[i, j],)))
    total = stage("total", (12,), lambda i: reduce("sum", (33,), lambda k: power[i, k]))
    of = stages((x,), (power, total, stage("y", (12, 33), lambda i, j: power[i, j] / total[i])))
    made = kept_rows(of, Gpu(processors=2, threads=64), columns=False)
    assert made is not None
    arrays = drawn_values(of)
    out = interpreted(made, arrays, (12, 33))
    np.testing.assert_allclose(out, evaluate_stages(of, arrays), rtol=1e-5)
    assert fold(lower(kernel_of(made), "gpu"), "k").text.count("expf(") == 2


def test_what_a_choice_leaves_out_is_not_read() -> None:
    x = buffer("x", (9, 40), f32)
    wide = stage("wide", (9, 50), lambda i, j: sc.Select(j < 40, x[i, j], sc.Lit(0.0, f32)))
    most = stage("most", (9,), lambda i: reduce("max", (50,), lambda k: wide[i, k]))
    below = stage("below", (9, 50), lambda i, j: wide[i, j] - most[i])
    assert row_passes(stages((x,), (wide, most, below))) is None


def test_long_rows_that_few_blocks_would_have_are_left_to_more_launches() -> None:
    assert kept_rows(normed((100_000, 16), (0,)), Gpu(), columns=True) is None


def test_sums_in_order_stay_so() -> None:
    facts = Facts((False, False), (), exact)
    forms = [each.form.form for each in candidates(normed((90, 40), (0,)), facts, Gpu())]
    assert "kept-columns" not in forms


def test_what_no_pass_reads_again_is_no_row() -> None:
    x = buffer("x", (9, 40), f32)
    total = stage("total", (9,), lambda i: reduce("sum", (40,), lambda k: x[i, k]))
    half = stage("half", (9, 40), lambda i, j: total[i] / 2.0)
    assert row_passes(stages((x,), (total, half))) is None


@pytest.mark.parametrize(("rows", "length", "dtype", "gpu"), [
    (2, 33, f32, Gpu(threads=8, warp=8, processors=2)), (3, 269, f16, SMALL),
    (20000, 269, f16, Gpu()),
])  # fmt: skip
def test_edges_that_threads_do_not_cover_are_left_to_other_forms(
    rows: int, length: int, dtype: DType, gpu: Gpu
) -> None:
    """What is before and behind the vectors of a row has a thread for each element."""
    x = buffer("x", (rows, length), dtype)
    top = stage("top", (rows,), lambda i: reduce("max", (length,), lambda k: x[i, k]))
    less = stage("less", (rows, length), lambda i, j: x[i, j] - top[i])
    of = stages((x,), (top, less))
    every = candidates(of, Facts((False,), (), reassociates), gpu)
    assert kept_rows(of, gpu, columns=False) is None
    assert "kept-rows" not in {each.form.form for each in every}
