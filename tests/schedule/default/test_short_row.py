"""Short rows go side by side, a row in each lane, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plica
from plica import op
from plica.ir.graph.expression import const
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import kernel_of
from plica.ir.text.show import show_kernel
from plica.schedule.default import Machine
from plica.schedule.default.short_row import LONGEST, SHORTEST, short_row_form
from tests.conftest import Golden
from tests.schedule.default.test_contraction import Array, numbers, whole
from tests.schedule.default.test_row import FEW, ROWS, near, one, rows

WIDE = Machine(512, 32)
LONG = tuple(name for name in ROWS if name != "sum")
"""Those that keep their rows."""


@pytest.mark.parametrize("name", LONG)
def test_short_rows_have_loops_of_their_own(name: str) -> None:
    x = rows(3, 40, 5)
    found = short_row_form(one(ROWS[name](x), x), WIDE)
    assert found is not None
    assert [type(each) for each in found.stages] == [ExternStage]


@pytest.mark.parametrize(
    "shape", [(40, SHORTEST - 1), (40, LONGEST + 1), (15, 5), (40, 1)], ids=str
)
def test_other_rows_have_not(shape: tuple[int, int]) -> None:
    x = rows(*shape)
    assert short_row_form(one(op.nn.softmax(x, axis=-1), x), WIDE) is None


@FEW
@given(
    st.sampled_from(LONG),
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, LONGEST + 2)),
    st.integers(0, 99),
)
def test_every_row_is_right(name: str, shape: tuple[int, ...], seed: int) -> None:
    x = rows(*shape)
    near(whole([x], ROWS[name](x)), numbers(seed, shape))


@FEW
@given(st.integers(16, 50), st.integers(SHORTEST, LONGEST), st.integers(0, 99))
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
    x = rows(20, 5)
    found = short_row_form(one(op.nn.log_softmax(x, axis=-1), x), Machine(128, 32))
    assert found is not None
    golden(show_kernel(kernel_of(found)))
