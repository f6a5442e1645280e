"""Functions of axes mean on numbers what the prover takes them for, for all axes up to rank 5."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product

import numpy as np
import pytest

from plica.rewrite.packs.axes import (
    composed,
    every,
    exclusive,
    explicit,
    merged,
    remaining,
    through,
    united,
)
from plica.rewrite.pattern import holes

MAX_RANK = 5
Axes = tuple[int, ...]


def subsets(rank: int) -> Iterator[Axes]:
    for count in range(rank + 1):
        yield from combinations(range(rank), count)


def orders(rank: int) -> list[Axes]:
    return list(permutations(range(rank)))[:: max(1, rank**2 - 8)]


def numbered(rank: int) -> np.ndarray:
    """An array whose shape tells its axes apart."""
    return np.empty(tuple(range(2, 2 + rank)), np.int8)


def kept_shape(of: np.ndarray, axes: Axes) -> Axes:
    return tuple(1 if at in axes else size for at, size in enumerate(of.shape))


def reduced_shape(of: np.ndarray, axes: Axes) -> Axes:
    return tuple(size for at, size in enumerate(of.shape) if at not in axes)


@pytest.mark.parametrize("rank", range(MAX_RANK + 1))
def test_axes_of_two_reductions_are_those_that_are_missing_after_both(rank: int) -> None:
    whole = numbered(rank)
    for first in subsets(rank):
        left = np.empty(reduced_shape(whole, first), np.int8)
        for second in subsets(left.ndim):
            both = merged.compute(first, second, range(rank))
            assert reduced_shape(whole, both) == reduced_shape(left, second)
        for second in subsets(rank):
            kept = np.empty(kept_shape(whole, first), np.int8)
            both = united.compute(first, second, range(rank))
            assert kept_shape(whole, both) == kept_shape(kept, second)


@pytest.mark.parametrize("rank", range(MAX_RANK + 1))
def test_axes_of_two_flips_are_those_that_one_flips(rank: int) -> None:
    whole = np.arange(2**rank).reshape((2,) * rank)
    for first, second in product(subsets(rank), repeat=2):
        both = exclusive.compute(first, second, range(rank))
        assert np.array_equal(np.flip(np.flip(whole, first), second), np.flip(whole, both))


@pytest.mark.parametrize("rank", range(MAX_RANK + 1))
def test_axes_before_a_transpose_are_those_behind_it(rank: int) -> None:
    whole = numbered(rank)
    for order, axes in product(orders(rank), subsets(rank)):
        turned = whole.transpose(order)
        before = through.compute(order, axes)
        narrow = np.empty(reduced_shape(whole, before), np.int8)
        wide = np.empty(kept_shape(whole, before), np.int8)
        behind = narrow.transpose(remaining.compute(order, axes, False))
        assert behind.shape == reduced_shape(turned, axes)
        kept = wide.transpose(remaining.compute(order, axes, True))
        assert kept.shape == kept_shape(turned, axes)


@pytest.mark.parametrize("rank", range(MAX_RANK + 1))
def test_an_order_of_two_transposes_is_that_of_both(rank: int) -> None:
    whole = numbered(rank)
    for inner, outer in product(orders(rank), repeat=2):
        both = whole.transpose(composed.compute(inner, outer))
        assert both.shape == whole.transpose(inner).transpose(outer).shape


def test_axes_written_out_are_counted_from_the_front() -> None:
    assert explicit.compute((-1, 0), range(3)) == (0, 2)
    assert explicit.compute(None, range(3)) == every.compute(range(3)) == (0, 1, 2)


def test_a_function_of_holes_is_a_part_of_a_right_side() -> None:
    a, x = holes("a x")
    assert explicit(a, x) is explicit(a, x)
    assert explicit(a, x).args == (a, x)
