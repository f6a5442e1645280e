"""The general template: what it makes of stages, and that they mean the same."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from attrs import evolve
from hypothesis import assume, given, settings, strategies as st

from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast
from plica.ir.loop.stage import Each, placeholder, stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.loop.tensor import reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, f64
from plica.schedule.default.choose import recorded
from plica.schedule.default.general_schedule import general_schedule
from plica.schedule.default.machine import Machine
from plica.schedule.generate.stages import KINDS, StagesCase
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from tests.codegen.native import assert_close, shape_of
from tests.conftest import Golden

FEW = settings(max_examples=max(20, settings().max_examples // 2))
MACHINE = Machine(vector=512, registers=32)
CORES = evolve(MACHINE, cores=4)
MACHINES = (MACHINE, CORES, Machine(vector=128, registers=16))


def made(of: Stages, machine: Machine = MACHINE) -> Kernel:
    return recorded(general_schedule(kernel_of(of), machine), kernel_of(of))[1]


@FEW
@given(st.one_of([make() for make in KINDS.values()]), st.sampled_from(MACHINES))
def test_stages_mean_what_they_did(of: StagesCase, machine: Machine) -> None:
    assume(not of.stages.dims and all(isinstance(each, Each) for each in of.stages.stages))
    start = kernel_of(of.stages)
    trace, kernel = recorded(general_schedule(start, machine), start)
    assert scheduled(Trace.from_json(trace.to_json()), start) is kernel
    with np.errstate(all="ignore"):
        wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
        found = run_kernel(lower(kernel), of.arrays)[-1]
    assert_close(found, wanted, [np.array(1e2)] if of.near else [])


def product() -> Stages:
    x, w = placeholder("x", (4, 8), f32), placeholder("w", (8, 100), f32)
    total = stage("t", (4, 100), lambda i, j: reduce("sum", (8,), lambda k: x[i, k] * w[k, j]))
    return stages((x, w), (total, stage("y", (4, 100), lambda i, j: total[i, j] + 1.0)))


def few_columns() -> Stages:
    x = placeholder("x", (3, 20, 9), f32)
    return stages(
        (x,), (stage("y", (3, 9), lambda i, j: reduce("max", (20,), lambda k: x[i, k, j])),)
    )


def two_folds() -> Stages:
    x = placeholder("x", (3, 20, 9), f32)
    most = stage("most", (3, 9), lambda i, j: reduce("max", (20,), lambda k: x[i, k, j]))
    least = stage("least", (3, 9), lambda i, j: reduce("min", (20,), lambda k: x[i, k, j]))
    return stages((x,), (most, least, stage("y", (3, 9), lambda i, j: most[i, j] - least[i, j])))


def neighbours() -> Stages:
    x = placeholder("x", (12, 20), f32)
    total = stage("t", (12,), lambda i: reduce("sum", (20,), lambda k: x[i, k]))
    return stages((x,), (total, stage("y", (12,), lambda i: total[i] * 0.5)))


def rows() -> Stages:
    x = placeholder("x", (40, 5), f32)
    away = stage("away", (5, 40), lambda i, j: x[j, i] - 1.0)
    total = stage("t", (5,), lambda i: reduce("sum", (40,), lambda k: away[i, k] * away[i, k]))
    wide = stage("wide", (5,), lambda i: Cast(total[i], f64))
    return stages(
        (x,), (away, total, wide, stage("y", (5, 40), lambda i, j: away[i, j] / Cast(wide[i], f32)))
    )


def transposed() -> Stages:
    x = placeholder("x", (2, 5, 20, 6), f32)
    total = stage("t", (2, 5, 6), lambda i, j, m: reduce("sum", (20,), lambda k: x[i, j, k, m]))
    return stages((x,), (total, stage("y", (6, 2, 5), lambda m, i, j: total[i, j, m] / 4.0)))


def open_elements() -> Stages:
    m, n = dim_var("m"), dim_var("n")
    x = placeholder("x", (m, n), f32)
    return stages((x,), (stage("y", (m, n), lambda i, j: x[i, j] * 2.0),))


def open_columns() -> Stages:
    m, n = dim_var("m"), dim_var("n")
    x = placeholder("x", (m, n), f32)
    return stages((x,), (stage("y", (n, m), lambda i, j: x[j, i] * 2.0),))


@pytest.mark.parametrize("make", [open_elements, open_columns], ids=lambda each: each.__name__)
def test_text_of_open_lanes(make: Callable[[], Stages], golden: Golden) -> None:
    of = kernel_of(make())
    trace, kernel = recorded(general_schedule(of, MACHINE), of)
    golden(f"{trace.to_python()}\n{show_kernel(lower(kernel))}", f"general_{make.__name__}")


@given(
    st.sampled_from((open_elements, open_columns)),
    st.sampled_from((128, 256, 512)),
    st.integers(0, 20),
    st.sampled_from((0, 1, 3, 15, 16, 33, 64, 130)),
)
@settings(max_examples=max(8, settings().max_examples // 2))
def test_lanes_of_open_axes_mean_what_they_did(
    make: Callable[[], Stages], bits: int, rows: int, columns: int
) -> None:
    of, machine = kernel_of(make()), Machine(bits, 32)
    lowered = lower(recorded(general_schedule(of, machine), of)[1])
    x = np.random.default_rng(rows).random((rows, columns), np.float32)
    (found,) = run_kernel(lowered, [x])
    np.testing.assert_array_equal(found, x * 2 if make is open_elements else x.T * 2)


CASES = (product, few_columns, two_folds, neighbours, rows, transposed)


@pytest.mark.parametrize("make", CASES, ids=lambda each: each.__name__)
def test_text(make: Callable[[], Stages], golden: Golden) -> None:
    of = make()
    trace, kernel = recorded(general_schedule(kernel_of(of), MACHINE), kernel_of(of))
    golden(f"{trace.to_python()}\n{show_kernel(kernel)}", f"general_{make.__name__}")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(1, 9, shape_of(each)).astype(np.float32) for each in of.inputs]
    assert_close(run_kernel(lower(kernel), arrays)[-1], np.asarray(evaluate_stages(of, arrays)))


def test_what_stages_of_a_row_keep_is_as_long_as_a_row() -> None:
    lowered = lower(made(rows()))
    own = [each.buffer for each in statements(lowered.body) if isinstance(each, Alloc)]
    assert own
    assert all(prod(shape_of(each)) <= 40 for each in own)


@pytest.mark.parametrize("length", [4097, 6144, 10_000])
def test_a_long_row_is_reduced_panel_by_panel(length: int) -> None:
    x = placeholder("x", (3, length), f32)
    total = stage("t", (length,), lambda j: reduce("sum", (3,), lambda k: x[k, j]))
    of = stages((x,), (total, stage("y", (length,), lambda j: total[j] * 2.0)))
    lowered = lower(made(of))
    own = [each.buffer for each in statements(lowered.body) if isinstance(each, Alloc)]
    assert {prod(shape_of(each)) for each in own} <= {1024, length % 1024}
    values = np.random.default_rng(length).integers(-9, 9, (3, length)).astype(np.float32)
    np.testing.assert_array_equal(run_kernel(lowered, [values])[-1], 2 * values.sum(0))


@pytest.mark.parametrize(("size", "kind"), [(1 << 10, "serial"), (1 << 18, "parallel")])
def test_cores_share_what_stores_often(size: int, kind: str) -> None:
    x = placeholder("x", (8, size // 8), f32)
    of = stages((x,), (stage("y", (8, size // 8), lambda i, j: x[7 - i, j]),))
    body = made(of, CORES).body
    assert isinstance(body, For)
    assert body.kind == kind
