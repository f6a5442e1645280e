"""Row streams: sums of wide rows, with and without factors, against numpy."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import plica
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Function, Var
from plica.ir.graph.module import module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import index
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import For, Kernel, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.default.column import column_form
from plica.schedule.form import Facts

Array = np.ndarray[Any, Any]
SHORT = Machine(128, 32)


def rows_with_factors(groups: int, depth: int, width: int) -> Stages:
    """Products of one row with a matrix, one for each group, twice of which is kept."""
    w, x = buffer("w", (groups, depth), f32), buffer("x", (groups, depth, width), f32)
    total = stage(
        "t", (groups, width),
        lambda i, j: reduce("sum", (depth,), lambda k: w[i, k] * x[i, k, j]),
    )  # fmt: skip
    twice = stage("y", (groups, width), lambda i, j: total[i, j] + total[i, j])
    return stages((w, x), (total, twice))


def scheduled(of: Stages, machine: Machine) -> Kernel:
    """What the form and the trace of its template make of stages."""
    formed = column_form(of, machine)
    assert formed is not None
    found = default_schedule(kernel_of(formed), machine)
    assert isinstance(found, tuple)
    return found[1]


@given(st.integers(2, 3), st.integers(4, 40), st.integers(16, 40))
@example(2, 33, 19)
@settings(max_examples=2, deadline=None)
def test_products_of_one_row_are_those_of_numpy(groups: int, depth: int, width: int) -> None:
    kernel = scheduled(rows_with_factors(groups, depth, width), SHORT)
    random = np.random.default_rng(depth)
    w: Array = random.standard_normal((groups, depth)).astype(np.float32)
    x: Array = random.standard_normal((groups, depth, width)).astype(np.float32)
    found = run_kernel(kernel, [w, x])[-1]
    wanted = 2 * np.einsum("ik,ikj->ij", w.astype(np.float64), x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_many_terms_are_added_up_in_twice_the_bits() -> None:
    x = Var(Name("x"), tensor((2, 1, 700), "f32"))
    y = Var(Name("y"), tensor((2, 700, 37), "f32"))
    main = Var(Name("main"), None)
    body = Apply("matmul", (x, y))
    exe = plica.compile(module({main: Function((), (), (x, y), None, body)}, main), cache=False)
    random = np.random.default_rng(1)
    sides = [
        random.standard_normal(each).astype(np.float32) for each in ((2, 1, 700), (2, 700, 37))
    ]
    wanted = sides[0].astype(np.float64) @ sides[1].astype(np.float64)
    np.testing.assert_allclose(np.asarray(exe(*sides)), wanted, rtol=1e-4, atol=1e-4)


def test_rows_that_no_cache_holds_the_sums_of_go_in_parts() -> None:
    x = buffer("x", (40, 300), f32)
    most = stage("y", (300,), lambda j: reduce("max", (40,), lambda k: x[k, j]))
    near = Machine(128, 32, (1 << 10, 1 << 20))
    cores = Machine(128, 32, (32 << 10, 1 << 20), 2)
    data: Array = np.random.default_rng(0).standard_normal((40, 300)).astype(np.float32)
    for machine in (near, cores):
        kernel = scheduled(stages((x,), (most,)), machine)
        np.testing.assert_array_equal(run_kernel(kernel, [data])[-1], data.max(0))
    (parts,) = [e for e in statements(scheduled(stages((x,), (most,)), near).body)
                if isinstance(e, For)][:1]  # fmt: skip
    assert parts.extent is index(300 // 64 + 1)


@pytest.mark.parametrize("machine", [Machine(256, 16), Machine(512, 32)])
def test_vectors_that_are_read_in_part_have_tiles_for_factors(machine: Machine) -> None:
    assert column_form(rows_with_factors(2, 40, 64), machine) is None


def test_a_matrix_that_is_known_is_packed_for_tiles() -> None:
    of = rows_with_factors(2, 40, 64)
    names = []
    for constant in ((False, False), (False, True)):
        form = formed(of, Facts(constant, (), reassociates), SHORT)
        assert form is not None
        names.append(form.form)
    assert names[0] == "column-sums"
    assert names[1] != "column-sums"


def test_what_several_rows_read_is_for_tiles() -> None:
    w, x = buffer("w", (3, 40), f32), buffer("x", (40, 64), f32)
    total = stage("y", (3, 64), lambda i, j: reduce("sum", (40,), lambda k: w[i, k] * x[k, j]))
    assert column_form(stages((w, x), (total,)), SHORT) is None
