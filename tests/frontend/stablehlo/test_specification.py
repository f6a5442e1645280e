"""The operations of the specification mean what XLA makes of them; the rest are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import plica
from plica.frontend.stablehlo.fuzz.run import run
from plica.frontend.stablehlo.table import CONTROL, REFUSED, TABLE
from tests.frontend.stablehlo.specification import OPERATIONS, PROGRAMS, inputs

CASES = [
    pytest.param(name, at, id=f"{name}-{at}", marks=() if number % 5 == at else pytest.mark.slow)
    for number, (name, texts) in enumerate(PROGRAMS.items())
    for at in range(len(texts))
]  # XLA takes long to compile
CONV: str = """func.func @main(%a: tensor<4x3x5xf32>, %b: tensor<4x3x2xf32>) -> tensor<4x4x5xf32> {
  %r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
    window = {pad = [[0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<4x3x5xf32>, tensor<4x3x2xf32>) -> tensor<4x4x5xf32>
  return %r : tensor<4x4x5xf32>
}"""

INSTEAD: dict[str, Callable[..., Any]] = {
    "dynamic_gather": lambda a, b: a[np.clip(b[:, 0], 0, 2)],
    "dynamic_conv": lambda a, b: run(CONV, a, b)[0],
    "dynamic_pad": lambda a, b: np.pad(a, ((1, 0), (0, 2)), constant_values=b),
    "collective_broadcast": lambda a: a,
}
"""What operations mean that XLA does not run on the processor."""


def agree(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        one, other = (np.asarray(each, np.float64) for each in (found, expected))
        np.testing.assert_allclose(one, other, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operation_is_read_at_once(name: str) -> None:
    for text in PROGRAMS[name]:
        module = plica.from_stablehlo(text)
        assert len(module.main_function().params) == text[: text.index("->")].count("%")


@pytest.mark.parametrize(("name", "at"), CASES)
def test_an_operation_means_what_xla_makes_of_it(name: str, at: int) -> None:
    text = PROGRAMS[name][at]
    module = plica.from_stablehlo(text)
    for seed in (1, 2):
        arrays = inputs(text, seed)
        found = plica.interpret(module, *arrays)
        expected = INSTEAD[name](*arrays) if name in INSTEAD else run(text, *arrays)[0]
        agree(np.asarray(found), expected)


def test_the_rest_of_the_specification_is_named() -> None:
    known = {*TABLE, *CONTROL}
    have = [name for name in OPERATIONS if name in known]
    assert not set(OPERATIONS) - known - set(REFUSED)
    assert not set(REFUSED) & known
    assert len(have) >= 0.9 * len(OPERATIONS)
    assert not {name for name in have if name not in PROGRAMS}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_row_is_refused_with_a_reason(name: str) -> None:
    text = f"""func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{
      %r = "stablehlo.{name}"(%a) : (tensor<2xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }}"""
    with pytest.raises(plica.UnsupportedError, match=f"stablehlo.{name} is not supported"):
        plica.from_stablehlo(text)
