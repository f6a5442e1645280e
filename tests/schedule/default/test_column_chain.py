"""Rows before a few columns are one kernel, stage after stage, and mean what they did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica import op
from plica.codegen.llvm.passes import are_columns
from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import Call, Expr, Function, Var
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse import FusionLimits, fuse
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule import Trace, replay
from plica.schedule.collapse import collapsed
from plica.schedule.default import Machine
from plica.schedule.default.choose import template_schedule
from plica.schedule.default.column_chain import MAX_COLUMNS, MIN_ROWS, column_chain_form, columns_of
from plica.schedule.replay import kernel_of as replayed
from tests.schedule.default.test_contraction import Array, numbers, whole
from tests.schedule.default.test_row import FEW, near

MACHINES = (Machine(128, 32), Machine(256, 16), Machine(512, 32))
ANY = FusionLimits(columns=lambda _: True)


def mean(x: Expr) -> Expr:
    return op.mean(x, axis=(1,), keepdims=True)


# fmt: off
COLUMNS: dict[str, Callable[[Expr], Expr]] = {
    "softmax":     lambda x: op.nn.softmax(x, axis=1),
    "log-softmax": lambda x: op.nn.log_softmax(x, axis=1),
    "spread":      lambda x: op.nn.l2_normalize(x - mean(x), axis=(1,)),
    "range":       lambda x: (x - op.min(x, axis=(1,), keepdims=True))
                             / (op.max(x, axis=(1,), keepdims=True) + 9.0),
}
# fmt: on


def called(value: Expr, *params: Var) -> Function:
    """The one function a program becomes where rows may lie along any axes."""
    module = decompose(flatten_graph(infer(whole(list(params), value))))
    call = fuse(module, ANY).main_function().body
    assert isinstance(call, Call)
    assert isinstance(call.callee, Function)
    return call.callee


def staged(value: Expr, *params: Var) -> Stages:
    return collapsed(to_stages(called(value, *params)).stages, free=True)


def given_x(*shape: int, dtype: str = "f32") -> Var:
    return Var(Name("x"), tensor(shape, dtype))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda each: str(each.vector))
@pytest.mark.parametrize("name", COLUMNS)
def test_the_loops_of_columns_mean_the_same(name: str, machine: Machine) -> None:
    shape = (2, 67, 5)  # no long row ends where the rows do
    x = given_x(*shape)
    of = staged(COLUMNS[name](x), x)
    found = column_chain_form(of, machine)
    assert found is not None
    assert all(isinstance(each, Each) for each in found.stages)
    kernel = kernel_of(found)
    made = template_schedule(kernel, machine)
    assert isinstance(made, tuple), made
    template, trace, scheduled = made
    assert template == "column-chain"
    again = replayed(replay(Trace.from_json(trace.to_json()), kernel), None)[2]
    assert digest(again) == digest(scheduled)
    data = numbers(3, shape)
    (done,) = run_kernel(scheduled, [data.reshape(2, -1)])
    expected = evaluate_stages(of, [data])
    np.testing.assert_allclose(done.ravel(), expected.ravel(), rtol=2e-5, atol=1e-6)


@FEW
@given(
    st.sampled_from(sorted(COLUMNS)),
    st.tuples(st.integers(1, 4), st.integers(1, 5 * MIN_ROWS), st.integers(1, MAX_COLUMNS + 2)),
    st.integers(0, 99),
)
def test_all_columns_are_right(name: str, shape: tuple[int, ...], seed: int) -> None:
    x, data = given_x(*shape), numbers(seed, shape)
    near(whole([x], COLUMNS[name](x)), data + np.linspace(0, 1, shape[1])[:, None].astype("f4"))


@FEW
@given(
    st.tuples(st.integers(1, 3), st.integers(MIN_ROWS, 900), st.integers(2, MAX_COLUMNS)),
    st.sampled_from(["f64", "f32", "f16"]),
    st.integers(0, 99),
)
def test_softmax_of_columns_beside_numpy(shape: tuple[int, ...], dtype: str, seed: int) -> None:
    x = given_x(*shape, dtype=dtype)
    data = np.random.default_rng(seed).standard_normal(shape).astype(dtype.replace("f", "float"))
    found = plica.compile(whole([x], op.nn.softmax(x, axis=1)), cache=False)(data)
    wide: Array = np.exp(data.astype(np.float64))
    near_by = {"f64": 1e-12, "f32": 2e-5, "f16": 3e-3}[dtype]
    np.testing.assert_allclose(found, wide / wide.sum(axis=1, keepdims=True), rtol=near_by)


def test_what_columns_share_and_what_all_share() -> None:
    x = given_x(3, 70, 6)
    b, s = Var(Name("b"), tensor((6,), "f32")), Var(Name("s"), tensor((3, 1, 1), "f32"))
    value = op.nn.softmax(x * s + b, axis=1)
    assert are_columns(called(value, x, b, s))
    near(whole([x, b, s], value), numbers(1, (3, 70, 6)), numbers(2, (6,)), numbers(3, (3, 1, 1)))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_column(odd: float) -> None:
    x, data = given_x(2, 67, 3), numbers(3, (2, 67, 3))
    data[1, 66, 2] = odd
    near(whole([x], op.nn.softmax(x, axis=1)), data)


@pytest.mark.parametrize(
    "shape",
    [(2, MIN_ROWS - 1, 5), (2, 67, MAX_COLUMNS + 1), (2, 1 << 14, 5)],
    ids=["few rows", "many columns", "too long to stay near"],
)
def test_other_columns_have_a_kernel_for_each_stage(shape: tuple[int, ...]) -> None:
    x = given_x(*shape)
    function = called(op.nn.softmax(x, axis=1), x)
    assert not are_columns(function)
    assert column_chain_form(collapsed(to_stages(function).stages, free=True), MACHINES[2]) is None


def test_what_follows_rows_alone_is_refused() -> None:
    x, k = given_x(2, 67, 5), Var(Name("k"), tensor((67, 1), "f32"))
    value = (x - op.max(x * k, axis=(1,), keepdims=True)) * k
    assert columns_of(staged(value, x, k)) is None
    near(whole([x, k], value), numbers(1, (2, 67, 5)), numbers(2, (67, 1)))


def test_sums_in_their_order_have_kernels_of_their_own() -> None:
    x, data = given_x(2, 67, 5), numbers(1, (2, 67, 5))
    of = whole([x], op.nn.softmax(x, axis=1))
    found = plica.compile(of, cache=False, contract="exact")(data)
    np.testing.assert_allclose(found, plica.interpret(of, data), rtol=2e-6)
