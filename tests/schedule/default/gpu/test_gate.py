"""Gates: all sums that an element needs, by threads of a warp, as a trace by the fold template."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.lower.passes import lower
from plica.core import digest
from plica.ir.contract import reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import kernel_of, scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, evaluate_stages, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type import DType, f16, f32, known
from plica.schedule import Trace
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.default.gpu.choose import laid_out
from plica.schedule.default.gpu.fold import fold_schedule
from plica.schedule.default.gpu.gate import gate_folds, gates_of
from plica.schedule.form import Facts
from plica.schedule.replay import kernel_of as kernel_after, replay
from tests.codegen.cuda.emulate import COMPILER, run

FREE = Facts((False, True, False), (), reassociates)
"""The weights of `product` are constants."""

GPUS = [Gpu(), Gpu(warp=4), Gpu(warp=2)]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def product(count: int, gates: int, rows: int, dtype: DType = f32, terms: int = 0) -> Stages:
    """A product of some rows, and a pointwise function of the parts of its columns."""
    terms = terms or count
    h, w = buffer("h", (rows, terms), dtype), buffer("w", (gates * count, terms), dtype)
    c = buffer("c", (rows, count), f32)
    z = stage("z", (rows, gates * count), lambda i, j: reduce(
        "sum", (terms,), lambda k: sc.Cast(h[i, k], f32) * sc.Cast(w[j, k], f32)
        if dtype is f16 else h[i, k] * w[j, k]))  # fmt: skip

    def value(i: sc.Scalar, j: sc.Scalar) -> sc.Scalar:
        found = c[i, j]
        for gate in reversed(range(gates)):
            found = found * 2.0 + z[i, j + count * gate if gate else j]
        return found

    return stages((h, w, c), (z, stage("y", (rows, count), value)))


def two_products(count: int) -> Stages:
    """Sums of two products, which read other sides."""
    x, h = buffer("x", (count,), f32), buffer("h", (count,), f32)
    w, v = buffer("w", (2 * count, count), f32), buffer("v", (count, count), f32)
    z = stage("z", (2 * count,), lambda j: reduce("sum", (count,), lambda k: x[k] * w[j, k]))
    u = stage("u", (count,), lambda j: reduce(
        "sum", (count,), lambda k: sc.Max(h[k], v[j, k])))  # fmt: skip
    y = stage("y", (count,), lambda j: z[j] * z[j + count] - u[j])
    return stages((x, h, w, v), (z, u, y))


def inputs_of(of: Stages) -> list[Any]:
    random = np.random.default_rng(0)
    return [
        random.integers(-3, 4, [known(size) or 0 for size in each.shape]).astype(each.dtype.name
            .replace("f", "float"))
        for each in of.inputs
    ]  # fmt: skip


def scheduled(of: Stages, gpu: Gpu) -> tuple[Stages, Trace, Any]:
    """The stages that are scheduled, their trace and the kernel."""
    gates = gates_of(of)
    assert gates is not None
    made = gate_folds(gates)
    found = fold_schedule(made, gpu)
    assert found is not None
    return made, *found


def check(of: Stages, gpu: Gpu) -> None:
    _, trace, kernel = scheduled(of, gpu)
    assert len(trace) > 10
    given_ = inputs_of(of)
    (got,) = run_kernel(lower(kernel, "gpu"), given_)
    np.testing.assert_array_equal(got.reshape(-1), evaluate_stages(of, given_).reshape(-1))


@settings(max_examples=6)
@given(
    count=st.integers(2, 45), gates=st.integers(2, 4), rows=st.integers(1, 3),
    dtype=st.sampled_from([f32, f16]), gpu=st.sampled_from(GPUS),
)  # fmt: skip
def test_gates_mean_the_same(count: int, gates: int, rows: int, dtype: DType, gpu: Gpu) -> None:
    """Whatever rows and terms are left over."""
    check(product(count, gates, rows, dtype), gpu)


@pytest.mark.parametrize("terms", [1, 2, 3, 4, 24, 257])
def test_elements_of_any_number_of_terms(terms: int) -> None:
    check(product(5, 3, 1, terms=terms), Gpu(warp=4))


def test_sums_may_be_of_other_sides_and_other_terms() -> None:
    check(two_products(12), Gpu(warp=4))


def test_one_sum_at_another_place_is_a_part() -> None:
    h, w = buffer("h", (24,), f32), buffer("w", (20, 24), f32)
    z = stage("z", (20,), lambda j: reduce("sum", (24,), lambda k: h[k] * w[j, k]))
    check(stages((h, w), (z, stage("y", (9,), lambda j: z[j + 11] * 2.0))), Gpu(warp=4))


def code_of(of: Stages) -> KernelCode:
    """The code of the first candidate, which is of the form."""
    found = next(candidates(of, FREE, Gpu()))
    assert found.form.form == "warp-gates"
    assert len(found.trace) > 10
    assert found.hoisted.before == ()  # vectors of weights are no other constants
    return fold(lower(found.kernel, "gpu"), "k")


@needs_compiler
@pytest.mark.parametrize("case", [(96, 4, 1, f32), (200, 3, 2, f16), (33, 4, 3, f32)])
def test_gates_are_one_launch_read_vectors_and_do_not_race(case: Any) -> None:
    of = laid_out(product(*case), FREE)
    code = code_of(of)
    assert len(code.launches) == 1
    assert ("= *((const uint4*)&w[" in code.text) == (case[0] % 4 == 0)
    assert "__shfl_xor_sync" in code.text
    assert "__shared__" not in code.text
    given_ = inputs_of(of)
    wanted = evaluate_stages(of, given_)
    out = np.full_like(wanted, 7)
    run(code, [*given_, out], watched=True)
    np.testing.assert_array_equal(out, wanted)


def test_threads_read_each_side_once() -> None:
    """A vector of the state, which all gates read, and one of each row of weights."""
    text = code_of(laid_out(product(128, 4, 1), FREE)).text
    assert text.count("= *((const uint4*)&h[") == 1
    assert text.count("= *((const uint4*)&w[") == 4


def test_a_trace_replays() -> None:
    made, trace, kernel = scheduled(product(70, 4, 1), Gpu())
    again = kernel_after(replay(Trace.from_json(trace.to_json()), kernel_of(made)))[2]
    assert digest(again) == digest(kernel)


def test_many_rows_single_sums_and_other_folds_are_none() -> None:
    assert gates_of(product(16, 4, 5)) is None
    assert gates_of(product(16, 1, 1)) is None
    assert gates_of(product(16, 9, 1)) is None
    x = buffer("x", (32, 16), f32)
    most = stage("z", (32,), lambda j: reduce("max", (16,), lambda k: x[j, k]))
    assert (
        gates_of(stages((x,), (most, stage("y", (16,), lambda j: most[j] - most[j + 16])))) is None
    )
