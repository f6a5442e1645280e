"""The fold template: rows and columns of any length, in parts or not, mean the same as traces."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.lower.passes import lower
from plica.core.digest import digest
from plica.ir.contract import exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.text.show.kernel import show_kernel
from plica.ir.type.dim import known
from plica.ir.type.dtype import f16, f32, i32
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.choose import laid_out
from plica.schedule.default.gpu.fold import fold_schedule, staged_schedule
from plica.schedule.default.gpu.fold_form import column_folds, row_folds, staged_folds
from plica.schedule.form import Facts
from plica.schedule.trace import Trace
from tests.codegen.cuda.emulate import COMPILER, run
from tests.schedule.default.gpu.test_split_reduction import reduced, whole

FREE = Facts((False,), (), reassociates)

SMALL = Gpu(threads=4, warp=2, processors=500, block=4)
"""Many processors with few threads: columns of a hundred elements are worth parts."""

SHAPES = [
    ((7, 45), (False, True)), ((3, 5, 33), (False, False, True)), ((40, 34), (False, True)),
    ((5, 19, 2), (False, True, True)), ((2, 6, 3, 8), (False, True, False, True)),
    ((1, 300), (True, True)), ((4, 283), (False, True)), ((1, 2100), (False, True)),
    ((150, 8), (True, False)), ((131, 3), (True, False)), ((3, 70, 4), (False, True, False)),
    ((2, 101, 3, 2), (False, True, False, False)), ((9, 2, 8, 6), (True, False, True, False)),
    ((1, 90, 4), (True, True, False)),
]  # fmt: skip
GPUS = [Gpu(threads=8, warp=8, processors=2), Gpu(threads=64, processors=1), SMALL,
        Gpu(threads=4, warp=2, processors=1, block=8)]  # fmt: skip


def folded(of: Stages, gpu: Gpu) -> tuple[Stages, Trace, Kernel] | None:
    """The stages that are scheduled, their trace and the kernel; None for other stages."""
    made = row_folds(of, gpu) or column_folds(of)
    found = None if made is None else fold_schedule(made, gpu)
    return None if made is None or found is None else (made, *found)


@settings(max_examples=5)
@given(st.sampled_from(SHAPES), st.sampled_from([("sum", f32), ("min", f16), ("max", f32)]),
       st.sampled_from(GPUS))  # fmt: skip
def test_folds_mean_the_same(shape: Any, kind: Any, gpu: Gpu) -> None:
    of = laid_out(reduced(kind[0], shape[0], shape[1], kind[1]), FREE)
    found = folded(of, gpu)
    assert found is not None
    made, trace, kernel = found
    assert len(trace) > 10
    x = whole(of)
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    (got,) = run_kernel(lower(kernel, "gpu"), [given_])
    np.testing.assert_array_equal(got, evaluate_stages(of, [x]))


def code_of(of: Stages, form: str) -> KernelCode:
    """The code of the first candidate, which is of a form and has a trace."""
    found = next(candidates(of, FREE, Gpu()))
    assert found.form.form == form
    assert len(found.trace) > 10
    return fold(lower(found.kernel, "gpu"), "k")


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@settings(max_examples=3, deadline=None)
@given(
    length=st.integers(32, 4099), rows=st.integers(1, 40), word=st.sampled_from(["sum", "max"]),
    dtype=st.sampled_from([f32, f16]), down=st.booleans(),
)  # fmt: skip
def test_no_threads_race(length: int, rows: int, word: Any, dtype: Any, down: bool) -> None:
    sizes = (length, rows) if down else (rows, length)
    of = laid_out(reduced(word, sizes, (down, not down), dtype), FREE)
    found = folded(of, Gpu())
    if found is None:  # one column is a row
        assert down
        return
    x = whole(of)
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(fold(lower(found[2], "gpu"), "k"), [x, out], watched=True)
    np.testing.assert_allclose(out, wanted, rtol=1e-2 if dtype is f16 else 1e-5)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("case", [((301, 1001), "max", f16, True), ((2003, 57), "sum", f32, False),
                                  ((500, 1280), "min", f16, True)])  # fmt: skip
def test_rows_are_read_in_vectors(case: Any) -> None:
    """Odd rows in vectors that begin where memory does; extremes of f16 by shuffles of f32."""
    sizes, word, dtype, vectors = case
    of = reduced(word, sizes, (False, True), dtype)
    code = code_of(of, "row-sums")
    assert ("*((const uint4*)&x" in code.text) == vectors
    assert "__shfl_xor_sync" in code.text
    x = whole(of)
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(code, [x, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("case", [((16_411, 40), (True, False), "sum", f32),
                                  ((5, 77, 48), (False, True, False), "max", f16)])  # fmt: skip
def test_columns_are_read_in_vectors(case: Any) -> None:
    sizes, over, word, dtype = case
    of = reduced(word, sizes, over, dtype)
    code = code_of(of, "column-sums")
    assert "*((const uint4*)&x" in code.text or "*((const float4*)&x" in code.text
    assert len(code.launches) == (2 if len(sizes) == 2 else 1)
    x = whole(of)
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(code, [x, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


SCRIPT = "import plica\n"

REPLAYED = """
import sys
import plica
from plica.core.digest import digest
from plica.ir.text.script import from_text
from plica.schedule import Trace
from plica.schedule.replay import kernel_of, replay
kernel = from_text(open(sys.argv[1]).read()).values[0]
print(digest(kernel_of(replay(Trace.from_json(open(sys.argv[2]).read()), kernel))[2]))
"""


@pytest.mark.parametrize("over", [(False, True), (True, False)])
def test_a_trace_replays_in_another_process(over: tuple[bool, bool], tmp_path: Any) -> None:
    of = laid_out(reduced("sum", (3000, 1001) if over[1] else (60_000, 64), over, f32), FREE)
    found = folded(of, Gpu())
    assert found is not None
    made, trace, kernel = found
    text, steps = tmp_path / "kernel.py", tmp_path / "trace.json"
    text.write_text(SCRIPT + show_kernel(kernel_of(made)))
    steps.write_text(trace.to_json())
    command = [sys.executable, "-c", REPLAYED, str(text), str(steps)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == digest(kernel)


@pytest.mark.parametrize("length", range(57, 150, 7))
def test_each_element_before_and_behind_vectors_is_a_term(length: int) -> None:
    """Of a machine whose warps have few threads rows are long that have few vectors."""
    of = reduced("sum", (3, length), (False, True), f16)
    made, x = row_folds(of, Gpu(warp=2)), whole(of)
    assert made is not None
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    np.testing.assert_array_equal(evaluate_stages(made, [given_]), evaluate_stages(of, [x]))


def test_long_columns_are_cut_into_parts_and_short_ones_are_not() -> None:
    for size, count in ((1 << 20, 2), (100, 1)):
        found = folded(reduced("sum", (size, 64), (True, False), f32), Gpu())
        assert found is not None
        assert len(fold(lower(found[2], "gpu"), "k").launches) == count


def test_products_are_none() -> None:
    x, w = buffer("x", (9, 40), f32), buffer("w", (40,), f32)
    product = stage("y", (9,), lambda i: reduce("sum", (40,), lambda k: x[i, k] * w[k]))
    assert row_folds(stages((x, w), (product,)), Gpu()) is None
    x, w = buffer("x", (9, 40), f32), buffer("w", (40, 12), f32)
    product = stage("y", (9, 12), lambda i, j: reduce("sum", (40,), lambda k: x[i, k] * w[k, j]))
    assert column_folds(stages((x, w), (product,))) is None


def test_rows_are_no_columns() -> None:
    x = buffer("x", (9, 40), f32)
    columns = stage("y", (40,), lambda i: reduce("sum", (9,), lambda k: x[k, i]))
    assert row_folds(stages((x,), (columns,)), Gpu()) is None
    rows = stage("y", (9,), lambda i: reduce("sum", (40,), lambda k: x[i, k]))
    assert column_folds(stages((x,), (rows,))) is None


def test_a_row_by_a_matrix_reads_vectors_of_the_matrix() -> None:
    x, w = buffer("x", (40,), f32), buffer("w", (40, 12), f32)
    by = stage("y", (12,), lambda j: reduce("sum", (40,), lambda k: x[k] * w[k, j]))
    of = stages((x, w), (by, stage("z", (12,), lambda j: sc.Max(by[j], sc.Lit(0.0, f32)))))
    made = column_folds(of)
    assert made is not None
    found = fold_schedule(made, SMALL)
    assert found is not None
    random = np.random.default_rng(0)
    given_ = [random.integers(-9, 9, n).astype(np.float32) for n in ((40,), (40, 12))]
    (got,) = run_kernel(lower(found[1], "gpu"), given_)
    np.testing.assert_array_equal(got, evaluate_stages(of, given_))


def test_windows_and_borders_are_none() -> None:
    """What a window has is read for others, too; and there is nothing at a border."""
    x = buffer("x", (9, 40), f32)
    pool = stage("y", (9, 38), lambda i, j: reduce("max", (3,), lambda k: x[i, j + k]))
    assert row_folds(stages((x,), (pool,)), Gpu()) is None
    ends = stage("y", (9,), lambda i: reduce(
        "max", (50,), lambda k: sc.Select(k < 40, x[i, k], sc.Lit(0.0, f32))))  # fmt: skip
    assert row_folds(stages((x,), (ends,)), Gpu()) is None
    x = buffer("x", (40, 12), f32)
    ends = stage("y", (12,), lambda j: reduce(
        "max", (50,), lambda k: sc.Select(k < 40, x[k, j], sc.Lit(0.0, f32))))  # fmt: skip
    assert column_folds(stages((x,), (ends,))) is None


def test_short_rows_are_a_threads_own() -> None:
    assert row_folds(reduced("sum", (900, 20), (False, True), f32), Gpu()) is None


@pytest.mark.parametrize("over", [(False, True), (True, False)])
def test_sums_in_order_stay_so(over: tuple[bool, bool]) -> None:
    of = reduced("sum", (90, 41), over, f32)
    forms = [each.form.form for each in candidates(of, Facts((False,), (), exact), Gpu())]
    assert "row-sums" not in forms
    assert "column-sums" not in forms


def test_rows_of_a_longer_tensor_do_not_follow_one_another() -> None:
    """A slice that begins at 0 is read at the axes alone; its rows lie further apart."""
    x = buffer("x", (5, 75), f16)
    most = stage("y", (5,), lambda i: reduce("max", (73,), lambda k: x[i, k]))
    of = stages((x,), (most,))
    found, given_ = folded(of, Gpu(threads=16, warp=8, processors=1, block=32)), whole(of)
    assert found is not None
    (got,) = run_kernel(lower(found[2], "gpu"), [given_])
    np.testing.assert_array_equal(got, evaluate_stages(of, [given_]))


def test_sums_of_integers_are_exact() -> None:
    of = reduced("sum", (33, 1003), (False, True), i32)
    found, x = folded(of, Gpu()), whole(of)
    assert found is not None
    given_ = x.reshape([known(size) or 0 for size in found[0].inputs[0].shape])
    (got,) = run_kernel(lower(found[2], "gpu"), [given_])
    np.testing.assert_array_equal(got, evaluate_stages(of, [x]))


STAGING = Gpu(threads=16, warp=16, processors=1, block=32, shared=16000)
"""So few threads that two hundred rows of thirty elements go through shared memory."""


def staged(of: Stages, gpu: Gpu) -> tuple[Stages, Trace, Kernel] | None:
    """The same of short rows that go through shared memory."""
    made = staged_folds(laid_out(of, FREE), gpu)
    found = None if made is None else staged_schedule(made, gpu)
    return None if made is None or found is None else (made, *found)


@settings(max_examples=5)
@given(rows=st.integers(255, 280), length=st.sampled_from([33, 35, 37, 42]),
       kind=st.sampled_from([("max", f16), ("sum", f32), ("min", i32)]))  # fmt: skip
def test_staged_rows_mean_the_same(rows: int, length: int, kind: Any) -> None:
    """However many rows the last block has, and wherever the last vector ends."""
    of = reduced(kind[0], (rows, length), (False, True), kind[1])
    found, x = staged(of, STAGING), whole(of)
    assert found is not None
    made, trace, kernel = found
    assert len(trace) > 10
    given_ = x.reshape([known(size) or 0 for size in made.inputs[0].shape])
    (got,) = run_kernel(lower(kernel, "gpu"), [given_])
    np.testing.assert_array_equal(got, evaluate_stages(of, [x]))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("case", [((301, 57), "sum", f32), ((407, 73), "max", f16)])
def test_staged_rows_are_read_in_vectors_and_do_not_race(case: Any) -> None:
    sizes, word, dtype = case
    of = reduced(word, sizes, (False, True), dtype)
    found, x = staged(of, Gpu(processors=2)), whole(of)
    assert found is not None
    code = fold(lower(found[2], "gpu"), "k")
    assert "= *((const uint4*)&x[" in code.text
    wanted = evaluate_stages(of, [x])
    out = np.full_like(wanted, 7)
    run(code, [x, out], watched=True)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


def test_rows_with_gaps_are_not_staged() -> None:
    x = buffer("x", (241, 37), f16)
    most = stage("y", (241,), lambda i: reduce("max", (35,), lambda k: x[i, k]))
    assert staged_folds(stages((x,), (most,)), STAGING) is None
