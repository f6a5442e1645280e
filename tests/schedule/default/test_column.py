"""Column reductions: stages of runs and long rows, whose loops are a trace, against numpy."""

from __future__ import annotations

from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from plica.codegen.form_fuzz.decision import TracedCase, changed, judged
from plica.codegen.form_fuzz.judge import StagesSubject
from plica.codegen.lower.passes import LOWERING
from plica.core.digest import digest
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Combiner, index
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import For, Kernel, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f32, f64, i32
from plica.schedule import Trace, replay
from plica.schedule.default import Machine, default_schedule
from plica.schedule.default.choose import template_schedule
from plica.schedule.default.column import column_form
from plica.schedule.form import Facts
from plica.schedule.generate.stages import StagesCase
from plica.schedule.replay import kernel_of as replayed

Array = np.ndarray[Any, Any]
MACHINES = (Machine(512, 32), Machine(256, 16), Machine(128, 32), Machine(512, 32, cores=4))
NUMPY = {f32: np.float32, f64: np.float64, i32: np.int32}


def columns(shape: tuple[int, ...], combiner: Combiner, dtype: DType = f32) -> Stages:
    """Rows before the last axis of three, folded, and something made of the result."""
    around, depth, width = shape
    if around == 1:
        x = buffer("x", (depth, width), dtype)
        total = stage(
            "t", (width,), lambda j: reduce(combiner, (depth,), lambda k: x[k, j])
        )  # fmt: skip
        return stages((x,), (total, stage("y", (width,), lambda j: total[j] + total[j])))
    x = buffer("x", shape, dtype)
    total = stage(
        "t", (around, width),
        lambda i, j: reduce(combiner, (depth,), lambda k: x[i, k, j]),
    )  # fmt: skip
    twice = stage("y", (around, width), lambda i, j: total[i, j] + total[i, j])
    return stages((x,), (total, twice))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("shape", [(1, 900, 20), (2, 12, 40), (9, 300, 16), (3, 40, 64)])
def test_columns_have_a_template_of_their_own(
    shape: tuple[int, int, int], machine: Machine
) -> None:
    """Vectors along columns, of any length, look like rows in lanes, which are written out."""
    found = template_schedule(kernel_of(column_form(columns(shape, "max"), machine)), machine)
    assert isinstance(found, tuple)
    assert found[0] == "folds"


def scheduled(of: Stages, machine: Machine) -> tuple[Kernel, Trace, Kernel]:
    """A form's kernel, its trace, and what that makes of it."""
    begun = kernel_of(of)
    found = default_schedule(begun, machine)
    assert isinstance(found, tuple)
    trace, made = found
    return begun, trace, made


@given(
    st.tuples(st.integers(1, 3), st.integers(2, 80), st.integers(2, 70)),
    st.sampled_from(("sum", "max")),
    st.sampled_from((f32, f64, i32)),
    st.sampled_from(MACHINES),
)
@example((2, 33, 19), "sum", f32, MACHINES[2])
@example((2, 70, 40), "sum", f32, MACHINES[0])
@example((1, 70, 300), "sum", f32, MACHINES[3])
@settings(max_examples=20, deadline=None)
def test_columns_are_those_of_numpy(
    shape: tuple[int, int, int], combiner: Combiner, dtype: DType, machine: Machine
) -> None:
    formed = column_form(columns(shape, combiner, dtype), machine)
    if formed is None:
        return
    assert all(isinstance(each, Each) for each in formed.stages)
    _, trace, made = scheduled(formed, machine)
    assert trace.steps
    random = np.random.default_rng(shape[1])
    x: Array = (random.standard_normal(shape) * 100).astype(NUMPY[dtype])
    reduced = x.max(1) if combiner == "max" else x.sum(1, dtype=np.float64)
    found = run_kernel(made, [x.reshape([int(n) for n in map(_size, formed.inputs[0].shape)])])[-1]
    np.testing.assert_allclose(found.reshape(reduced.shape), 2 * reduced, rtol=1e-5, atol=1e-3)


def _size(of: Any) -> int:  # Any: the term of a known size
    size: int = of.value
    return size


@pytest.mark.parametrize("shape", [(2, 1000, 7), (1, 100, 150), (3, 20, 64)], ids=str)
def test_the_trace_is_replayed_from_its_text(shape: tuple[int, int, int]) -> None:
    formed = column_form(columns(shape, "sum"), MACHINES[0])
    assert formed is not None
    begun, trace, made = scheduled(formed, MACHINES[0])
    again = replay(Trace.from_json(trace.to_json()), begun)
    assert digest(replayed(again, None)[2]) == digest(made)


def test_sums_of_many_terms_are_joined_in_f64() -> None:
    formed = column_form(columns((1, 1000, 64), "sum"), MACHINES[0])
    assert formed is not None
    dtypes = {str(out.name): out.dtype for each in formed.stages for out in each.outs}
    assert (dtypes["run"], dtypes["long"]) == (f32, f64)


def test_rows_that_fill_no_vectors_are_read_as_one() -> None:
    formed = column_form(columns((1, 1000, 7), "sum"), MACHINES[0])
    assert formed is not None
    assert formed.inputs[0].shape[-1] == index(7000)
    assert [str(out.name) for each in formed.stages for out in each.outs] == [
        "run",
        "long",
        "total",
        "out",
    ]


def test_cores_share_the_parts_of_a_row_where_there_is_one() -> None:
    machine = MACHINES[3]
    formed = column_form(columns((1, 4000, 2000), "max"), machine)
    assert formed is not None
    _, _, made = scheduled(formed, machine)
    parallel = [e for e in statements(made.body) if isinstance(e, For) and e.kind == "parallel"]
    assert len(parallel) == 1


@pytest.mark.parametrize("shape", [(2, 70, 7), (1, 40, 37), (2, 9, 130)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_other_decisions_are_right_or_refused(shape: tuple[int, int, int], seed: int) -> None:
    of, random = columns(shape, "sum"), Random(seed)
    formed = column_form(of, MACHINES[seed % len(MACHINES)])
    if formed is None:
        return
    begun, trace, _ = scheduled(formed, MACHINES[seed % len(MACHINES)])
    rows = shape if shape[0] > 1 else shape[1:]
    x: Array = np.random.default_rng(seed).integers(-9, 9, rows).astype(np.float32)
    subject = StagesSubject(StagesCase(of, Facts((False,)), [x]), "columns", 2 * x.sum(-2))
    arrays = [x.reshape([_size(n) for n in formed.inputs[0].shape])]
    passes = LOWERING["cpu"].passes
    case = TracedCase(subject, "columns", "folds", begun, trace, arrays, passes)
    other, kinds = changed(trace, random)
    assert isinstance(judged(case, other, kinds), str)
