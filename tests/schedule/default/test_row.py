"""Chains of stages along rows are one kernel, and mean what they did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.lower.decompose import decompose
from plica.codegen.lower.graph_flattening import flatten_graph
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.graph.expression import Call, Expr, Function, Var
from plica.ir.graph.module import Module
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, kernel_of
from plica.ir.loop.statement import Store, statements
from plica.ir.text.show import show_kernel
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse import fuse
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.graph.walk import expressions
from plica.schedule.default import Machine, default_schedule
from plica.schedule.default.row import chain_form, rows_of
from tests.conftest import Golden
from tests.schedule.default.test_contraction import Array, numbers, whole

FEW = settings(max_examples=max(4, settings().max_examples // 5))
WIDE = Machine(512, 32)
LENGTHS = (1, 7, 10, 33, 50, 64, 100, 1000, 1025)


def largest(x: Expr) -> Expr:
    return op.max(x, axis=(-1,), keepdims=True)


def middle(x: Expr) -> Expr:
    return op.mean(x, axis=(-1,), keepdims=True)


# fmt: off
ROWS: dict[str, Callable[[Expr], Expr]] = {
    "softmax":     lambda x: op.nn.softmax(x, axis=-1),
    "log-softmax": lambda x: op.nn.log_softmax(x, axis=-1),
    "away":        lambda x: op.exp(x) - op.mean(x, axis=(-1,), keepdims=True),
    "norm":        lambda x: op.nn.l2_normalize(x, axis=(-1,)),
    "spread":      lambda x: op.nn.l2_normalize(x - middle(x), axis=(-1,)),
    "sum":         lambda x: op.sum(op.exp(x - largest(x)), axis=(-1,), keepdims=True),
}
# fmt: on


def near(of: Module, *arrays: Array) -> None:
    """Compiled code gives what the interpreter gives, up to rounding."""
    found = plica.compile(of, cache=False)(*arrays)
    expected = plica.interpret(of, *arrays)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def one(value: Expr, *params: Var) -> Stages:
    """The stages of the one kernel a program becomes."""
    module = decompose(flatten_graph(infer(whole(list(params), value))))
    call = fuse(module).main_function().body
    assert isinstance(call, Call)
    assert isinstance(call.callee, Function)
    return to_stages(call.callee).stages


def rows(*shape: int) -> Var:
    return Var(Name("x"), tensor(shape, "f32"))


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_one_kernel(name: str) -> None:
    x = rows(3, 100)
    found = one(ROWS[name](x), x)
    assert rows_of(found) == 1
    form = chain_form(found, WIDE)
    assert form is not None
    assert isinstance(default_schedule(kernel_of(form), WIDE), tuple)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length(length: int) -> None:
    x = rows(2, length)
    near(whole([x], op.nn.softmax(x, axis=-1)), numbers(2, (2, length)))


@FEW
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.sampled_from(LENGTHS),
    st.sampled_from(sorted(ROWS)),
)
def test_rows_mean_the_same(around: list[int], length: int, name: str) -> None:
    x = rows(*around, length)
    near(whole([x], ROWS[name](x)), numbers(2, (*around, length)))


def test_weights_go_along_a_row() -> None:
    x, g = rows(3, 77), Var(Name("g"), tensor((77,), "f32"))
    value = op.nn.layer_norm(x, g, g, axis=-1)
    assert rows_of(one(value, x, g)) == 1
    near(whole([x, g], value), numbers(2, (3, 77)), numbers(2, (77,)))
    near(whole([x, g], op.nn.rms_norm(x, g, axis=-1)), numbers(2, (3, 77)), numbers(2, (77,)))


def test_a_row_of_anything_stays_its_own() -> None:
    x = rows(5, 70)
    values = numbers(2, (5, 70))
    values[0, 69], values[1, 3], values[2, :] = np.nan, np.inf, -np.inf
    values[3, 0], values[3, 1:] = 0.0, -200.0
    module = whole([x], op.nn.softmax(x, axis=-1))
    with np.errstate(all="ignore"):
        expected = plica.interpret(module, values)
    for threads in (1, 2):
        found = plica.compile(module, threads=threads, cache=False)(values)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("contract", ["exact", "reassociates"])
def test_contracts(contract: str) -> None:
    x = rows(6, 200)
    values: Array = np.random.default_rng(0).standard_normal((6, 200)).astype(np.float32)
    module = whole([x], op.nn.softmax(x, axis=-1))
    found = plica.compile(module, contract=contract, cache=False)(values)
    np.testing.assert_allclose(found, plica.interpret(module, values), rtol=1e-5)


def test_short_rows_and_columns_have_no_form() -> None:
    x = rows(3, 8)
    assert chain_form(one(ROWS["softmax"](x), x), WIDE) is None
    x = rows(3, 3)
    assert chain_form(one(ROWS["softmax"](x), x), Machine(128, 16)) is None
    for length in (9, 15, 20):
        x = rows(3, length)
        assert chain_form(one(ROWS["softmax"](x), x), WIDE) is not None
    y = rows(100, 4)
    module = fuse(decompose(flatten_graph(infer(whole([y], op.nn.softmax(y, axis=0))))))
    calls = [each for each in expressions(module.main_function().body) if isinstance(each, Call)]
    functions = [each.callee for each in calls if isinstance(each.callee, Function)]
    assert functions
    assert not any(rows_of(to_stages(each).stages) for each in functions)


def test_what_a_row_has_once_is_made_once_and_the_row_away_from_it_again() -> None:
    x = Var(Name("x"), tensor((6, 500), "f32"))
    mean = op.mean(x, axis=(-1,), keepdims=True)
    of = one(op.sum((x - mean) * (x - mean), axis=(-1,), keepdims=True) * (x - mean), x)
    made = chain_form(of, WIDE)
    assert made is not None
    kept = [each.out for each in made.stages if isinstance(each, Each)]
    assert [len(each.shape) for each in kept if each.name.hint == "stage"] == [1]


def test_what_is_kept_of_a_row_is_kept_in_the_result() -> None:
    x = rows(3, 128)
    form = chain_form(one(ROWS["softmax"](x), x), WIDE)
    assert form is not None
    made = default_schedule(kernel_of(form), WIDE)
    assert isinstance(made, tuple)
    kernel = lower(made[1], "cpu")
    stores = [each for each in statements(kernel.body) if isinstance(each, Store)]
    assert sum(each.buffer is kernel.params[-1] for each in stores) == 2


def test_text_of_softmax(golden: Golden) -> None:
    x = rows(3, 128)
    form = chain_form(one(ROWS["softmax"](x), x), WIDE, approximates=True)
    assert form is not None
    made = default_schedule(kernel_of(form), WIDE)
    assert isinstance(made, tuple)
    golden(made[0].to_python() + "\n" + show_kernel(lower(made[1], "cpu"), "softmax"))


@pytest.mark.parametrize(("length", "ahead"), [(1000, 2), (100_000, 0)])
def test_the_next_row_comes_nearer_where_there_is_room_for_it(length: int, ahead: int) -> None:
    x = rows(4, length)
    form = chain_form(one(ROWS["softmax"](x), x), WIDE)
    assert form is not None
    made = default_schedule(kernel_of(form), WIDE)
    assert isinstance(made, tuple)
    assert show_kernel(lower(made[1], "cpu"), "softmax").count("fetch=") == ahead


def test_two_cores_share_rows() -> None:
    x = rows(64, 1024)
    module = whole([x], op.nn.softmax(x, axis=-1))
    exe = plica.compile(module, threads=2, cache=False)
    assert "parallel" in exe.source("kernel")
    values: Array = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    np.testing.assert_allclose(exe(values), plica.interpret(module, values), rtol=1e-5)


@pytest.mark.parametrize(("contract", "count"), [("reassociates", 0), ("approx(0.0001)", 1)])
def test_only_an_approximation_multiplies_by_a_reciprocal(contract: str, count: int) -> None:
    x = rows(6, 256)
    module = whole([x], op.nn.softmax(x, axis=-1))
    text = plica.compile(module, contract=contract, threads=1, cache=False).source("kernel")
    assert text.count("1.0 / ") == count
    assert text.count(" / ") == 1


def test_a_row_is_divided_by_anything() -> None:
    x = rows(7, 64)
    values = numbers(2, (7, 64))
    for row, power in enumerate((-140, -126, -100, 0, 100, 120)):
        values[row] = np.abs(values[row] + 3) * np.float32(2.0**power)
    values[6] = 0
    module = whole([x], x / op.sum(x, axis=(-1,), keepdims=True))
    assert rows_of(one(x / op.sum(x, axis=(-1,), keepdims=True), x)) == 1
    with np.errstate(all="ignore"):
        expected = plica.interpret(module, values)
    found = plica.compile(module, cache=False)(values)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
