"""Ordering by the host: the order of a stable sort, whatever it sorts, and by whichever way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.runtime.staged.order import SORTED, argsort, argwhere, unique

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


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", "?", "i8"])
@pytest.mark.parametrize("in_order", [0, 1])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=6)
def test_different_elements_are_those_that_the_operator_gives(
    dtype: str, in_order: int, seed: int
) -> None:
    """Both zeros are one element, which is the first of them, and so are all nans; past their
    number is the last in order.  What is not wanted changes nothing of the others."""
    random = np.random.default_rng(seed)
    count = int(random.choice([0, 1, 2, 20, 2 * SORTED]))
    some = random.choice(SPECIAL[:-1], count) if dtype[0] == "f" else random.integers(0, 9, count)
    x = some.astype(dtype)
    ranks = np.unique(x, return_inverse=True)[1].reshape(-1)
    first = np.array([np.flatnonzero(ranks == each)[0] for each in np.unique(ranks)], np.int64)
    first = first if in_order else np.sort(first)
    last, rest = np.argsort(x, kind="stable")[-1:], count - len(first)
    held = np.array([np.sum(ranks == ranks[at]) for at in first], np.int64)
    wanted = tuple(map(bool, random.integers(0, 2, 5)))
    for asked in (wanted, (True,) * 5, (True, False, False, False, True)):
        values, firsts, inverse, counts, number = unique(x, in_order, asked)
        assert number is not None
        assert int(number) == len(first)
        if values is not None:
            meant = x[np.concatenate([first, np.repeat(last, rest)])]
            assert values.dtype == x.dtype
            assert np.array_equal(values, meant, equal_nan=dtype[0] == "f")
            signs = [np.signbit(each[: len(first)] * 1.0) for each in (values, meant)]
            assert np.array_equal(signs[0], signs[1]) or bool(np.isnan(x * 1.0).any())
        if firsts is not None:
            assert np.array_equal(firsts, np.concatenate([first, np.repeat(last, rest)]))
        if inverse is not None:
            assert np.array_equal(ranks[first][inverse], ranks)
        if counts is not None:
            assert np.array_equal(counts, np.concatenate([held, np.zeros(rest)]))


@pytest.mark.parametrize("in_order", [0, 1])
@given(st.lists(st.integers(0, 5), max_size=12))
def test_what_is_not_wanted_whole_ends_with_the_last(in_order: int, numbers: list[int]) -> None:
    x = np.array(numbers, np.int64)
    *parts, count = unique(x, in_order)
    *short, same = unique(x, in_order, whole=(False,) * 5)
    assert same == count
    assert count is not None
    for number, (part, less) in enumerate(zip(parts, short, strict=True)):
        assert part is not None
        assert less is not None
        assert np.array_equal(less, part if number == 2 else part[: int(count)])
    places, _ = argwhere(x, whole=(False, True))
    assert np.array_equal(places, np.argwhere(x))
