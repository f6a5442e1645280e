"""Intervals of scalar operators: where the result lies, from where the operands do.

An interval is a pair of real numbers, infinities included; integers are exact (Python's own).  What
wraps around or rounds is not looked at here: who asks compares with the bounds of the dtype.

>>> product((-2, 3), (4, 5)), quotient((7, 9), (2, 2)), within(-1.0, 1.0)((0.0, 9.0))
((-10, 15), (3, 4), (-1.0, 1.0))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from plica.ir.loop.scalar_row import Interval, Range


def total(a: Interval, b: Interval) -> Interval:
    """Of a sum."""
    return a[0] + b[0], a[1] + b[1]


def difference(a: Interval, b: Interval) -> Interval:
    """Of a difference."""
    return a[0] - b[1], a[1] - b[0]


def product(a: Interval, b: Interval) -> Interval:
    """Of a product."""
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _times(x: float, y: float) -> float:
    return x * y if x and y else 0  # and not nan where the other is infinite


def quotient(a: Interval, b: Interval) -> Interval | None:
    """Of a quotient rounded down, by a positive divisor."""
    if b[0] <= 0:
        return None
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def remainder(a: Interval, b: Interval) -> Interval | None:
    """Of a remainder by a positive divisor of integers."""
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def least(a: Interval, b: Interval) -> Interval:
    """Of the lesser."""
    return min(a[0], b[0]), min(a[1], b[1])


def greatest(a: Interval, b: Interval) -> Interval:
    """Of the greater."""
    return max(a[0], b[0]), max(a[1], b[1])


def hull(a: Interval, b: Interval) -> Interval:
    """Of either."""
    return min(a[0], b[0]), max(a[1], b[1])


def size(a: Interval) -> Interval:
    """Of the absolute value."""
    low = 0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return low, max(abs(a[0]), abs(a[1]))


def fused(a: Interval, b: Interval, c: Interval) -> Interval:
    """Of a product and a sum."""
    return total(product(a, b), c)


def within(low: float, high: float) -> Range:
    """Of what is bounded whatever it is applied to."""
    return lambda *_: (low, high)


def rising(function: Callable[..., Any], start: float = -math.inf) -> Range:
    """Of a function of numpy that never falls, defined from `start` on."""

    def found(a: Interval) -> Interval | None:
        if not a[0] >= start:
            return None
        with np.errstate(all="ignore"):
            return float(function(float(a[0]))), float(function(float(a[1])))

    return found
