"""What cannot be differentiated is said, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

import plica
from plica.ir.graph.operator import Operator
from plica.ir.loop.scalar import Add
from plica.ir.op import find, names, quantise
from plica.ir.op.record import pointwise
from tests.rewrite.gradient import source

ONE = """
@plica.function
def main(x: Tensor[(2,), f64], n: Tensor[(2,), i64]) -> Tensor[(2,), f64]:
    return x * 2.0
"""


@pytest.fixture
def strange() -> tuple[str, str]:
    """Two operators whose records have no gradient."""
    found = "strange_for_a_test", "stranger_for_a_test"
    for name in found:
        pointwise(name, ("x",), lambda x: Add(x, x), "Twice x.")
    return found


def refused(text: str, derive: Any = plica.grad, **how: Any) -> plica.PlicaError:
    with pytest.raises(plica.PlicaError) as caught:
        derive(source.read(text), **how)
    return caught.value


def test_a_gradient_is_that_of_one_number() -> None:
    error = refused(ONE)
    assert error.code == "not-scalar"
    assert isinstance(error, plica.InputError)
    assert "vjp" in str(error)


@pytest.mark.parametrize("wrt", ["y", 2, -1, 1.5, True, ("x", None)])
def test_parameters_must_exist(wrt: Any) -> None:
    error = refused(ONE, plica.vjp, wrt=wrt)
    assert error.code == "input-unknown"
    assert "x, n" in str(error)


def test_parameters_must_have_floats() -> None:
    assert refused(ONE, plica.vjp, wrt="n").code == "not-differentiable"


def test_some_parameter_must_have_floats() -> None:
    text = """
@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), f64]:
    return op.cast(n, f64)
"""
    assert refused(text).code == "not-differentiable"


def test_a_result_must_have_floats() -> None:
    text = """
@plica.function
def main(x: Tensor[(2,), f64]) -> Tensor[(), i64]:
    return op.size(x)
"""
    assert refused(text, plica.jvp).code == "not-differentiable"


def test_missing_gradients_are_reported_together(strange: tuple[str, str]) -> None:
    text = """
@plica.function
def f(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    if n == 0:
        return FIRST(x)
    else:
        return f(SECOND(x), n - 1)

@plica.function
def main(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    return f(FIRST(x), n)
"""
    first, second = (f"op.{name}" for name in strange)
    error = refused(text.replace("FIRST", first).replace("SECOND", second))
    assert isinstance(error, plica.UnsupportedError)
    assert [each.code for each in error.diagnostics] == ["no-gradient"] * 3
    assert all(name in str(error) for name in strange)
    assert "stop_gradient" in str(error)


def test_what_is_defined_elsewhere_has_no_gradient() -> None:
    text = """
outside = plica.extern("outside", Fn[(Tensor[(), f64],), Tensor[(), f64]])

@plica.function
def main(x: Tensor[(), f64]) -> Tensor[(), f64]:
    return outside(x)
"""
    assert refused(text).code == "no-gradient"


# --- every record --------------------------------------------------------------------------------

OF_NO_FLOATS = {
    "all", "any", "arange", "bit_field", "bits_as", "bits_of", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "dim_value",
    "equal", "first_places",
    "eye", "full", "greater", "greater_equal", "iota", "isfinite", "isinf", "isnan", "left_shift",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "merge_runs",
    "nn.window_first", "not_equal", "one_hot", "ones", "right_shift", "searchsorted", "shape_of",
    "signbit", "size", "zeros",
}  # fmt: skip
"""Operators that take no floats, or give none."""


def is_derived(record: Operator) -> bool:
    """Whether a record can be differentiated: by itself, or by what it is made of."""
    return record.gradient is not None or record.decompose is not None


def test_no_operator_of_floats_is_without_a_gradient() -> None:
    """What is quantised has none: it is refused, and named."""
    whole = {each.name for each in vars(quantise).values() if isinstance(each, Operator)}
    whole |= {"nn.packed_dense"}  # its weight is quantised
    missing = {
        name
        for name in names()
        if (record := find(name)) is not None and not is_derived(record) and name not in whole
    }
    assert missing == OF_NO_FLOATS
