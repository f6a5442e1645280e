"""Scattering: indices outside the data are refused, in code and by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from tests.frontend.onnx.build import Array, one, runtime


def arrays(kind: str, at: int) -> tuple[Array, Array, Array]:
    data = np.zeros((4, 3), np.float32)
    if kind == "ScatterND":
        return data, np.array([[1], [at]]), np.ones((2, 3), np.float32)
    return data, np.array([[1, at, 0]]), np.ones((1, 3), np.float32)


@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("at", [-5, -4, -1, 0, 3, 4, 9])
def test_what_is_outside_is_refused(kind: str, at: int) -> None:
    given = arrays(kind, at)
    made = one(kind, given)
    named = {f"x{number}": each for number, each in enumerate(given)}
    for run in (plica.compile(made), lambda **x: plica.interpret(plica.from_onnx(made), **x)):
        if -4 <= at < 4:
            np.testing.assert_array_equal(run(**named), runtime(made, named)[0])
        else:
            with pytest.raises(plica.PlicaError, match="index-out-of-bounds"):
                run(**named)


def test_indices_of_no_axes_mean_the_whole() -> None:
    data, updates = np.zeros((2, 2), np.float32), np.ones((1, 2, 2), np.float32)
    made = one("ScatterND", (data, np.zeros((1, 0), np.int64), updates))
    found = plica.compile(made)(data, np.zeros((1, 0), np.int64), updates)
    np.testing.assert_array_equal(found, updates[0])
