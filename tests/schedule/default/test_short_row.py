"""Short rows go side by side, a row in each lane, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica import op
from plica.codegen.lower.passes import lower
from plica.codegen.memory_plan import overwritable
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import Var, const
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import kernel_of
from plica.ir.text.show import show_kernel
from plica.ir.type.term import tensor
from plica.schedule import Trace, replay
from plica.schedule.collapse import collapsed
from plica.schedule.default import Machine
from plica.schedule.default.choose import template_schedule
from plica.schedule.default.short_row import (
    MAX_ROW_ELEMENTS,
    MIN_ROW_ELEMENTS,
    short_row_form,
    short_row_schedule,
)
from plica.schedule.replay import kernel_of as replayed
from tests.conftest import Golden
from tests.schedule.default.test_contraction import Array, numbers, whole
from tests.schedule.default.test_row import FEW, ROWS, near, one, rows

WIDE = Machine(512, 32)
LONG = tuple(name for name in ROWS if name != "sum")
"""Those that keep their rows."""


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("count", [40, 48])
def test_short_rows_have_a_trace_that_is_replayed_from_its_text(name: str, count: int) -> None:
    x = rows(3, count, 5)
    found = short_row_form(one(ROWS[name](x), x), WIDE)
    assert found is not None
    assert all(isinstance(each, Each) for each in found.stages)
    kernel = kernel_of(found)
    made = template_schedule(kernel, WIDE)
    assert isinstance(made, tuple), made
    template, trace, scheduled = made
    assert template == "short-rows"
    again = replayed(replay(Trace.from_json(trace.to_json()), kernel), None)[2]
    assert digest(again) == digest(scheduled)


@pytest.mark.parametrize(
    "shape", [(40, MIN_ROW_ELEMENTS - 1), (40, MAX_ROW_ELEMENTS + 1), (15, 5), (40, 1)], ids=str
)
def test_other_rows_have_not(shape: tuple[int, int]) -> None:
    x = rows(*shape)
    assert short_row_form(one(op.nn.softmax(x, axis=-1), x), WIDE) is None


@FEW
@given(
    st.sampled_from(LONG),
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, MAX_ROW_ELEMENTS + 2)),
    st.integers(0, 99),
)
def test_every_row_is_right(name: str, shape: tuple[int, ...], seed: int) -> None:
    x = rows(*shape)
    near(whole([x], ROWS[name](x)), numbers(seed, shape))


@FEW
@given(st.integers(16, 50), st.integers(MIN_ROW_ELEMENTS, MAX_ROW_ELEMENTS), st.integers(0, 99))
def test_norms_with_a_scale_beside_numpy(count: int, length: int, seed: int) -> None:
    x, scale = rows(count, length), numbers(seed + 1, (length,))
    data = numbers(seed, (count, length))
    middle = op.mean(x, axis=(-1,), keepdims=True)
    spread = op.mean(op.square(x - middle), axis=(-1,), keepdims=True)
    made = (x - middle) / op.sqrt(spread + 1e-3) * const(scale)
    found = plica.compile(whole([x], made), cache=False)(data)
    wide: Array = data.astype(np.float64)
    away = wide - wide.mean(axis=-1, keepdims=True)
    expected = away / np.sqrt((away**2).mean(axis=-1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(odd: float) -> None:
    x, data = rows(37, 5), numbers(3, (37, 5))
    data[21, 2] = odd
    near(whole([x], op.nn.softmax(x, axis=-1)), data)


def test_loops_of_short_rows(golden: Golden) -> None:
    x = rows(22, 5)
    machine = Machine(128, 32)
    found = short_row_form(one(op.nn.log_softmax(x, axis=-1), x), machine)
    assert found is not None
    made = template_schedule(kernel_of(found), machine)
    assert isinstance(made, tuple), made
    golden(show_kernel(made[2]))


def another(name: str, shape: tuple[int, ...]) -> Var:
    return Var(Name(name), tensor(shape, "f32"))


def beside_rows(shape: tuple[int, ...], kept: tuple[bool, ...]) -> tuple[int, ...]:
    """The shape of what is the same along some axes."""
    return tuple([size if keeps else 1 for size, keeps in zip(shape, kept, strict=True)])


@FEW
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 60), st.integers(1, MAX_ROW_ELEMENTS + 1)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(0, 99),
)
def test_functions_of_short_rows_beside_numpy(
    shape: tuple[int, ...], kept: tuple[bool, ...], other: tuple[bool, ...], seed: int
) -> None:
    few, more = beside_rows(shape, kept), beside_rows(shape, other)
    x, y, z = rows(*shape), another("y", few), another("z", more)
    made = op.tanh(op.nn.softplus(x) * y) + op.exp(z)
    given_ = [numbers(seed + at, each) for at, each in enumerate((shape, few, more))]
    found = plica.compile(whole([x, y, z], made), cache=False)(*given_)
    a, b, c = (each.astype(np.float64) for each in given_)
    expected = np.tanh(np.log1p(np.exp(a)) * b) + np.exp(c)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("few", [(41, 1, 1), (1, 2, 3), (41, 2, 1), (1, 1, 3)], ids=str)
def test_functions_go_on_from_row_to_row(few: tuple[int, ...]) -> None:
    x, y = rows(41, 2, 3), another("y", few)
    kernel = kernel_of(collapsed(one(op.tanh(x) * y, x, y)))
    made = template_schedule(kernel, Machine(128, 32))
    assert isinstance(made, tuple), made
    template, trace, scheduled = made
    assert template == "short-rows"
    again = replayed(replay(Trace.from_json(trace.to_json()), kernel), None)[2]
    assert digest(again) == digest(scheduled)


@pytest.mark.parametrize("shape", [(41, 8), (3, 3), (41, MAX_ROW_ELEMENTS + 1)], ids=str)
def test_functions_of_other_rows_do_not(shape: tuple[int, int]) -> None:
    x, y = rows(*shape), another("y", (shape[0], 1))
    assert short_row_schedule(kernel_of(one(op.tanh(x) * y, x, y)), Machine(128, 32)) is None


def test_sums_of_short_rows_are_left_to_plain_loops() -> None:
    x, y = rows(41, 3), another("y", (41, 1))
    assert short_row_schedule(kernel_of(one((x + y) * y, x, y)), Machine(128, 32)) is None


@pytest.mark.parametrize("few", [(41, 1), (1, 3)], ids=["column", "row"])
def test_loops_of_functions(golden: Golden, few: tuple[int, int]) -> None:
    x, y = rows(41, 3), another("y", few)
    kernel = kernel_of(collapsed(one(op.tanh(x) * y, x, y)))
    made = template_schedule(kernel, Machine(128, 32))
    assert isinstance(made, tuple), made
    golden(show_kernel(made[2]))


@pytest.mark.parametrize("count", [4096, 4099])
def test_cores_share_rows_end_to_end(count: int) -> None:
    x, y = rows(count, 5), another("y", (count, 1))
    module = whole([x, y], op.tanh(x) * y)
    data, more = numbers(1, (count, 5)), numbers(2, (count, 1))
    found = plica.compile(module, threads=2, cache=False)(data, more)
    np.testing.assert_allclose(found, np.tanh(data) * more, rtol=2e-5, atol=2e-6)
    kernel = kernel_of(one(op.tanh(x) * y, x, y))
    made = template_schedule(kernel, Machine(128, 32, cores=2))
    assert isinstance(made, tuple), made
    assert made[0] == "short-rows"
    assert "parallel" in made[1].to_python()


def test_rows_made_twice_are_not_written_over_what_they_read() -> None:
    x, y = rows(41, 3), another("y", (41, 1))
    kernel = kernel_of(collapsed(one(op.tanh(x) * y, x, y)))
    made = template_schedule(kernel, Machine(128, 32))
    assert isinstance(made, tuple), made
    assert not overwritable(lower(made[2], "cpu"))


@pytest.mark.parametrize("shape", [(2, 4, 7), (40,), (40, 5)], ids=str)
def test_stages_without_rows_are_none_of_short_rows(shape: tuple[int, ...]) -> None:
    """Parts of a total, and the total itself, lie in no lanes of rows."""
    x, numbers_ = rows(*shape), numbers(3, shape)
    total = numbers_.astype(np.float64).sum()
    for made, expected in ((op.sum(x), total), (x - op.sum(x), numbers_ - total)):
        found = plica.compile(whole([x], made), cache=False)(numbers_)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)
