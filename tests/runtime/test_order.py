"""Ordering by the host: the order of a stable sort, whatever it sorts, and by whichever way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.runtime.staged.order import SORTED, argsort, argwhere

SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.0, -1.0, 3.4e38]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u4", "i1", "u1", "?", "i8"])
@given(seed=st.integers(0, 2**16), rows=st.integers(1, 3), axis=st.integers(-2, 1))
@settings(max_examples=8)
def test_equal_elements_keep_their_order_both_ways(
    dtype: str, seed: int, rows: int, axis: int
) -> None:
    random = np.random.default_rng(seed)
    count = int(random.choice([1, SORTED - 1, SORTED, 3 * SORTED]))
    kind = np.dtype(dtype)
    if kind.kind == "f":
        some = np.where(
            random.random((rows, count)) < 0.5,
            random.choice(SPECIAL, (rows, count)),
            random.integers(-9, 9, (rows, count)),
        )
    else:
        low, high = (0, 1) if dtype == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
        some = random.choice([low, high, low + (high - low) // 2, 0, 1], (rows, count))
    x = some.astype(kind)
    (up,) = argsort(x, axis)
    assert up.dtype == np.int64
    assert np.array_equal(up, np.argsort(x, axis, kind="stable"))
    (down,) = argsort(x, axis, descending=1)
    held = np.take_along_axis(x, down, axis)
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # nans are one, and the greatest
    ranks = np.moveaxis(np.take_along_axis(rank, down, axis), axis, -1)
    places = np.moveaxis(down, axis, -1)
    apart = np.diff(ranks, axis=-1)
    assert held.shape == x.shape
    assert bool((apart <= 0).all())
    assert bool((np.diff(places, axis=-1)[apart == 0] > 0).all())


@given(st.lists(st.booleans(), max_size=20), st.sampled_from([1, 2]))
def test_places_come_with_how_many_there_are(flags: list[bool], axes: int) -> None:
    x = np.array(flags, np.bool_).reshape((-1,) if axes == 1 else (-1, 1))
    places, count = argwhere(x)
    assert count == x.sum()
    assert np.array_equal(places[: int(count)], np.argwhere(x))
    assert places.shape == (x.size, axes)
    assert bool((places[int(count) :] == -1).all())
