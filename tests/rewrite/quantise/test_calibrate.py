"""From numbers to scales: half a step at most is lost, and nothing that is not a number."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import plica
from plica.rewrite.quantise.calibrate import METHODS, Seen, Spec, chosen, weights
from plica.rewrite.quantise.simulate import rounded
from plica.runtime.error import InputError, UnsupportedError
from tests.rewrite.quantise.net import module_of, numbers, var

Array = np.ndarray[Any, Any]


def seen(values: Array) -> Seen:
    return Seen().extended(values).counted(np.zeros(1)).counted(values)


@given(st.integers(0, 999), st.sampled_from((1e-3, 1.0, 50.0)), st.booleans(), st.booleans())
def test_half_a_step_is_lost_at_most(
    seed: int, size: float, symmetric: bool, power_of_two: bool
) -> None:
    values = (numbers(seed, 50) * size + size / 3).astype(np.float32)
    point = chosen(seen(values), Spec(symmetric, power_of_two))
    x = var("x", (50,))
    found = plica.interpret(module_of(rounded(x, point), x), values)
    slack = 1 if symmetric else 2  # a zero point is rounded, too
    assert np.abs(found - values).max() <= point.scale * slack / 2 * (1 + 1e-4)
    if power_of_two:
        assert np.frexp(point.scale)[0] == 0.5


@given(st.integers(0, 999), st.booleans(), st.booleans(), st.integers(0, 1))
def test_weights_lose_half_a_step_at_most(
    seed: int, per_channel: bool, power_of_two: bool, axis: int
) -> None:
    values = numbers(seed, 4, 6) * np.array([[0.1], [1.0], [9.0], [0.0]], np.float32)
    found, scale = weights(values, axis, Spec(True, power_of_two, per_channel))
    assert found.dtype == np.int8
    assert scale.shape == (((4, 1), (1, 6))[axis] if per_channel else ())
    assert np.all(np.abs(found * scale - values) <= scale / 2 * (1 + 1e-6))


@pytest.mark.parametrize("method", METHODS)
def test_methods_keep_most_and_are_deterministic(method: Any) -> None:
    values = np.append(numbers(0, 5000), np.float32(40.0))
    spec = Spec(method=method, percentile=99.9)
    point = chosen(seen(values), spec)
    assert point == chosen(seen(values), spec)
    top = point.scale * 127
    # One far number costs more squares than all others together if it is cut off.
    assert top > 30.0 if method in ("max", "mse") else 2.0 < top < 30.0


def test_nothing_but_zeros_has_a_scale() -> None:
    for method in METHODS:
        spec: Any = Spec(method=method)  # type: ignore[arg-type]  # one of the words
        assert chosen(seen(np.zeros(3, np.float32)), spec).scale == 1.0
    assert chosen(seen(np.zeros((0,), np.float32)), Spec(symmetric=False)).zero == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(InputError) as caught:
        Seen().extended(np.array([1.0, bad]), "point 3")
    assert caught.value.diagnostics[0].code == "not-finite"
    assert "point 3" in caught.value.diagnostics[0].message
    with pytest.raises(UnsupportedError) as other:
        weights(np.array([[bad]]), 0, Spec())
    assert other.value.diagnostics[0].code == "not-finite"


def test_a_method_that_is_none_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        Spec(method="median")  # type: ignore[arg-type]  # the point of the test
    assert caught.value.diagnostics[0].expected == "one of max, percentile, mse, kl"
    with pytest.raises(UnsupportedError):
        Spec(percentile=0)
