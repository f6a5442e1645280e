"""Numbers of a store for many schedules at once, from each loop inward.

>>> inward(np.array([[2.0], [3.0]]), np.cumprod, 1.0)[:, 0].tolist()
[6.0, 3.0, 1.0]
>>> innermost(np.array([[True, True], [True, False]])).tolist()
[1, 0]
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from plica.schedule.default.machine import LINE, Machine
from plica.search.feature.layout import StorePlace

Array: TypeAlias = np.ndarray[Any, Any]  # numbers, truth values or places, for all schedules


class StoreNumbers:
    """The numbers of one store as arrays whose last axis is that of the schedules."""

    def __init__(self, place: StorePlace, numbers: Array, machine: Machine) -> None:
        self.place, self.machine = place, machine
        count, loops, touches = len(numbers), len(place.loops), len(place.touches)
        rank = max([layout_touch.rank for layout_touch in place.touches], default=0)
        columns = numbers[:, place.first : place.first + place.size].T
        self.count = count
        self.extents = columns[:loops]
        outside = np.nan_to_num(columns[loops : 2 * loops]) > 0
        self.many = self.extents > 1
        at = 2 * loops
        coefficients = np.zeros((touches, rank, loops, count))
        ranges = np.ones((touches, rank, loops, count))
        shape = np.ones((touches, rank, count))
        strides = np.zeros((touches, rank, count))
        for number, touch in enumerate(place.touches):
            shape[number, : touch.rank] = columns[at : at + touch.rank]
            strides[number, : touch.rank] = columns[at + touch.rank : at + 2 * touch.rank]
            at += 2 * touch.rank
            for loop, dimension in touch.pairs:
                coefficients[number, dimension, loop] = columns[at]
                ranges[number, dimension, loop] = columns[at + 1]
                at += 2
        coefficients = np.where(ranges > 1, coefficients, 0.0)
        self.room_bytes, self.room_times = columns[at], columns[at + 1]
        # Distances in elements between one step of a loop and the next, and places along it.
        self.distances = np.einsum("adln,adn->aln", coefficients, strides)
        self.ranges = np.minimum(ranges.prod(axis=1), self.extents)
        self.moves = self.ranges > 1
        written = self.moves[0] if touches else np.zeros((loops, count), bool)
        self.reduces = self.many & ~written & ~outside
        self.spatial = self.many & ~self.reduces
        # Everything below is from a loop inward: row l is of the loops l and inside it.
        self.steps = inward(self.extents, np.cumprod, 1.0)
        spans = inward(coefficients * (ranges - 1), np.cumsum, 0.0, axis=2)
        box = np.minimum(1 + spans, shape[:, :, None]).prod(axis=1)
        self.unique = np.minimum(inward(self.ranges, np.cumprod, 1.0, axis=1), box)
        self.bytes = np.array([float(layout_touch.bytes) for layout_touch in place.touches])
        near = self.moves & (self.distances * self.bytes[:, None, None] < LINE)
        run = inward(np.where(near, self.ranges, 1.0), np.cumprod, 1.0, axis=1)
        self.lines = self.unique / np.minimum(run, (LINE / self.bytes)[:, None, None])


def inward(of: Array, total: np.ufunc | object, start: float, axis: int = 0) -> Array:
    """Totals from the end of an axis, and what nothing gives at the end."""
    flipped = np.flip(of, axis)
    summed = np.flip(total(flipped, axis=axis), axis)  # type: ignore[operator]  # a numpy function
    shape = list(of.shape)
    shape[axis] = 1
    return np.concatenate([summed, np.full(shape, start)], axis=axis)


def log_of(of: Array | float) -> Array:
    return np.log2(1.0 + np.asarray(of, dtype=np.float64))


def of_kind(of: StoreNumbers, kinds: tuple[str, ...]) -> Array:
    marked = np.array([kind in kinds for kind in of.place.kinds], bool)
    array: Array = of.many & marked[:, None]
    return array


def product_of(of: StoreNumbers, kinds: tuple[str, ...]) -> Array:
    array: Array = np.where(of_kind(of, kinds), of.extents, 1.0).prod(axis=0)
    return array


def innermost(mask: Array) -> Array:
    """The index of the innermost loop of a mask, or -1."""
    if not len(mask):
        return np.full(mask.shape[1], -1)
    last = len(mask) - 1 - np.argmax(mask[::-1], axis=0)
    return np.where(mask.any(axis=0), last, -1)


def at_loop(of: Array, loop: Array, default: float) -> Array:
    """Of each schedule the value at its loop, and the default where that is -1."""
    if not len(of):
        return np.full(of.shape[-1], default)
    return np.where(loop >= 0, of[loop, np.arange(len(loop))], default)  # -1 is the last, not taken
