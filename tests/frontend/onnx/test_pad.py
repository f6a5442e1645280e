"""Pads that cut off: amounts below zero, in every mode, as onnxruntime takes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.frontend.onnx.build import agrees, f32_like, one

AMOUNTS = st.lists(st.integers(-1, 2), min_size=4, max_size=4)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@given(AMOUNTS, st.integers(5, 8), st.integers(5, 8))
def test_pads_of_both_signs(mode: str, amounts: list[int], rows: int, columns: int) -> None:
    arrays = (f32_like(rows, columns), np.array(amounts, np.int64))
    agrees(one("Pad", arrays, stored=1, mode=mode), {"x0": arrays[0]})
