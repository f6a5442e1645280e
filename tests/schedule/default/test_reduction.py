"""Reductions along rows by rules of thumb mean what they did, where sums may be reassociated."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.graph.expression import Apply, Expr, Var
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.default.choose import recorded
from plica.schedule.default.reduction import row_form
from plica.schedule.default.reduction_schedule import row_schedule
from plica.schedule.default.row import chain_form
from plica.schedule.form import Facts
from tests.schedule.begun import begun
from tests.schedule.default.test_contraction import Array, numbers, same, whole

FEW = settings(max_examples=max(4, settings().max_examples // 3))
WIDE = Machine(512, 32)


def reduced(x: Expr, word: str, axis: int) -> Expr:
    return Apply(word, (x,), (("axis", (axis,)), ("keepdims", True)))


@FEW
@given(st.integers(1, 7), st.integers(1, 300), st.sampled_from(("sum", "max", "min")))
def test_rows_mean_the_same(rows: int, length: int, word: str) -> None:
    x = Var(Name("x"), tensor((rows, length), "f32"))
    same(whole([x], reduced(x * 2.0, word, -1) + 1.0), numbers(3, (rows, length)))


@pytest.mark.parametrize("shape", [(3, 5, 64), (2, 3, 33)])
def test_several_axes_are_reduced(shape: tuple[int, ...]) -> None:
    x = Var(Name("x"), tensor(shape, "f32"))
    value = Apply("sum", (x,), (("axis", (1, 2)), ("keepdims", False)))
    same(whole([x], value), numbers(3, shape))


@FEW
@given(st.integers(0, 2), st.sampled_from((0, 1, 3, 15, 16, 65, 130, 1030, 2111)),
       st.sampled_from(("sum", "max")), st.sampled_from((128, 256, 512)))  # fmt: skip
def test_rows_of_open_length_mean_the_same(
    rows: int, length: int, word: Literal["sum", "max"], bits: int
) -> None:
    m, n = dim_var("m"), dim_var("n")
    x = buffer("x", (m, n), f32)
    total = stage("y", (m,), lambda i: reduce(word, (n,), lambda k: x[i, k]))
    machine = Machine(bits, 32)
    form = row_form(stages((x,), (total,)), machine)
    assert form is not None
    schedule = row_schedule(kernel_of(form), machine)
    assert schedule is not None
    values = numbers(3, (rows, length))
    (found,) = run_kernel(lower(recorded(schedule, kernel_of(form))[1]), [values])
    expected = values.sum(1) if word == "sum" else values.max(1, initial=-np.inf)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_row_of_anything_stays_the_same() -> None:
    x = Var(Name("x"), tensor((2, 130), "f32"))
    values = numbers(3, (2, 130))
    values[0, 7], values[1, 128] = np.nan, np.inf
    module = whole([x], reduced(x, "max", -1))
    found = plica.compile(module, cache=False)(values)
    np.testing.assert_array_equal(found, plica.interpret(module, values))


@pytest.mark.parametrize("contract", [reassociates, exact], ids=str)
def test_only_where_sums_may_be_reassociated(contract: Contract) -> None:
    x = Var(Name("x"), tensor((4, 100), "f32"))
    function = infer(whole([x], reduced(x, "sum", -1))).main_function()
    form = formed(to_stages(function).stages, Facts((False,), (), contract), WIDE)
    assert (form is not None) == (contract is reassociates)
    if form is not None:
        assert isinstance(default_schedule(begun(form.stages, (False,)), WIDE), tuple)


def test_columns_are_no_rows() -> None:
    x = Var(Name("x"), tensor((100, 4), "f32"))
    function = infer(whole([x], reduced(x, "sum", 0))).main_function()
    found = formed(to_stages(function).stages, Facts((False,), (), reassociates), WIDE)
    assert found is not None
    assert found.form == "column-sums"


@pytest.mark.parametrize("kernel", [(1, 13), (13, 1)])
def test_windows_that_slide_have_lanes_along_places(kernel: tuple[int, int]) -> None:
    x = Var(Name("x"), tensor((1, 8, 20, 19), "f32"))
    value = op.nn.max_pool(x, kernel=kernel, strides=1, padding=(kernel[0] // 2, kernel[1] // 2))
    function = infer(whole([x], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False,), (), reassociates), Machine(128, 32))
    assert form is not None
    assert form.form == "lanes-over-row"
    same(whole([x], value), numbers(3, (1, 8, 20, 19)))


def test_averages_are_sums_that_are_divided() -> None:
    x = Var(Name("x"), tensor((1, 4, 20, 32), "f32"))
    value = op.nn.avg_pool(x, kernel=(3, 3), strides=2, padding=1)
    function = infer(whole([x], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False,)), WIDE)
    assert form is not None
    assert isinstance(default_schedule(begun(form.stages, (False,)), WIDE), tuple)
    same(whole([x], value), numbers(3, (1, 4, 20, 32)))


def test_softmax_sums_to_one() -> None:
    x = Var(Name("x"), tensor((5, 77), "f32"))
    values: Array = np.random.default_rng(0).standard_normal((5, 77)).astype(np.float32)
    exe = plica.compile(whole([x], Apply("nn.softmax", (x,), (("axis", -1),))), cache=False)
    found = exe(values)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("length", [35, 123, 1030])
def test_the_last_vectors_of_several_rows_are_read_in_part(length: int) -> None:
    x = buffer("x", (9, 2, length), f32)
    total = stage("y", (2,), lambda i: reduce("sum", (9, length), lambda p, q: x[p, i, q]))
    data = np.random.default_rng(length).integers(-9, 9, (9, 2, length)).astype(np.float32)
    for machine in (Machine(512, 32), Machine(128, 32)):
        made = row_form(stages((x,), (total,)), machine)
        assert made is not None
        assert ("rest" in str(made)) is not machine.masks
        kernel = kernel_of(made)
        schedule = row_schedule(kernel, machine)
        assert schedule is not None
        (found,) = run_kernel(recorded(schedule, kernel)[1], [data])
        np.testing.assert_array_equal(found, data.sum((0, 2)))


def test_a_rest_of_one_row_is_no_vector_of_parts() -> None:
    """Its two places are read at row 0, as vectors side by side are."""
    x, bias = buffer("x", (2, 2, 33), f32), buffer("bias", (1,), f32)
    most = stage(
        "most", (1, 2, 1), lambda _a, i, _c: reduce("max", (2, 33), lambda p, q: x[p, i, q])
    )
    out = stage("out", (1, 2, 1), lambda _a, i, c: most[0, i, c] + bias[c])
    machine = Machine(512, 32)
    made = chain_form(stages((x, bias), (most, out)), machine)
    assert made is not None
    kernel = kernel_of(made)
    schedule = row_schedule(kernel, machine)
    assert schedule is not None
    random = np.random.default_rng(0)
    data, more = (random.standard_normal(n).astype(np.float32) for n in ((2, 2, 33), (1,)))
    (found,) = run_kernel(recorded(schedule, kernel)[1], [data, more])
    np.testing.assert_array_equal(found[0, :, 0], data.max((0, 2)) + more)


@pytest.mark.parametrize("machine", [Machine(512, 32), Machine(256, 16), Machine(128, 32)], ids=str)
@pytest.mark.parametrize("length", [24, 40, 97])
def test_short_rows_are_joined_together(machine: Machine, length: int) -> None:
    x = buffer("x", (8, length), f32)
    most = stage("most", (8,), lambda i: reduce("max", (length,), lambda k: x[i, k]))
    made = row_form(stages((x,), (most,)), machine)
    assert made is not None
    scheduled = default_schedule(kernel_of(made), machine)
    assert isinstance(scheduled, tuple)
    trace, kernel = scheduled
    assert "split" in trace.to_python()
    data = np.random.default_rng(0).standard_normal((8, length)).astype(np.float32)
    data[3, 5] = np.nan
    *_, found = run_kernel(kernel, [data])
    np.testing.assert_array_equal(found, data.max(1))


@pytest.mark.parametrize("rows", [3, 6])
def test_rows_that_four_do_not_divide_go_one_by_one(rows: int) -> None:
    x = buffer("x", (rows, 24), f32)
    most = stage("most", (rows,), lambda i: reduce("max", (24,), lambda k: x[i, k]))
    made = row_form(stages((x,), (most,)), WIDE)
    assert made is not None
    scheduled = default_schedule(kernel_of(made), WIDE)
    assert isinstance(scheduled, tuple)
    assert "split" not in scheduled[0].to_python()
