"""Gradients of externs: those that they declare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.core import digest
from plica.ir.graph.module import Extern

SOURCE = """
power = plica.extern(
    "power",
    Fn[
        (Tensor[("n",), f64], Tensor[(), i64]), tuple[Tensor[("n",), f64], Tensor[("n",), i64]]
    ],
    gradient="power_gradient",
)
dot = plica.extern(
    "dot", Fn[(Tensor[("n",), f64], Tensor[("n",), f64]), Tensor[(), f64]], gradient="dot_gradient"
)

@plica.function
def main(x: Tensor[(3,), f64], y: Tensor[(3,), f64], k: Tensor[(), i64]) -> Tensor[(), f64]:
    z, _ = power(x * y, k)
    return dot(z, x)
"""
MEANING: dict[str, Any] = {
    "power": lambda x, k: (x**k, x.astype(np.int64)),
    "power_gradient": lambda x, k, d: k * x ** (k - 1) * d,
    "dot": lambda x, y: np.asarray(x @ y),
    "dot_gradient": lambda x, y, d: (d * y, d * x),
}


def test_the_declared_extern_is_called() -> None:
    module = plica.from_text(SOURCE)
    slopes = plica.grad(module, wrt=("x", "y"))
    symbols = {each.symbol for each in slopes.values if isinstance(each, Extern)}
    assert symbols == {"power", "power_gradient", "dot_gradient"}
    x, y, k = np.array([0.5, 1.0, 2.0]), np.array([1.5, -1.0, 0.25]), np.int64(3)
    expected = 4 * x**3 * y**3, 3 * x**4 * y**2
    served = {each: MEANING[each] for each in symbols}
    for found in (
        plica.interpret(slopes, x, y, k, externs=MEANING),
        plica.compile(slopes, externs=served)(x, y, k),
    ):
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), two)


def test_it_is_written_down_and_read() -> None:
    module = plica.from_text(SOURCE)
    assert 'gradient="power_gradient"' in str(module)
    assert digest(plica.from_text(str(module))) == digest(module)


def test_second_derivatives_are_refused() -> None:
    once = plica.vjp(plica.from_text(SOURCE), wrt="x")
    with pytest.raises(plica.UnsupportedError, match="declares no gradient"):
        plica.vjp(once)
