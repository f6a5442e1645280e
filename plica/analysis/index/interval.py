"""Intervals: sets of integers between two bounds, either of which may be missing.

>>> Interval(0, 7) + Interval(1, None)
Interval(low=1, high=None)
>>> Interval(-3, 8) // 4, Interval(8, 11) % 4, Interval(5, 9) % 4
(Interval(low=-1, high=2), Interval(low=0, high=3), Interval(low=0, high=3))

Every operation is sound: the result contains each value that operands within their intervals can
produce. An interval with low above high is empty.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Interval(NamedTuple):
    """The integers from `low` to `high`, both included; None is unbounded."""

    low: int | None
    high: int | None

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int)
            and (self.low is None or self.low <= value)
            and (self.high is None or value <= self.high)
        )

    def __add__(self, other: object) -> Interval:
        if not isinstance(other, Interval):
            return NotImplemented
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Interval(low, high)

    def __neg__(self) -> Interval:
        return self.scaled(-1)

    def scaled(self, factor: int) -> Interval:
        """Every value times a number."""
        if factor == 0:
            return Interval(0, 0)
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Interval(low, high) if factor > 0 else Interval(high, low)

    def shifted(self, by: int) -> Interval:
        """Every value plus a number."""
        low = None if self.low is None else self.low + by
        return Interval(low, None if self.high is None else self.high + by)

    def times(self, other: Interval) -> Interval:
        """Products of a value of each."""
        if ZERO in (self, other):
            return ZERO
        ends = [
            _product(a, b) for a in (_low(self), _high(self)) for b in (_low(other), _high(other))
        ]
        return _from_ends(min(ends), max(ends))

    def __floordiv__(self, by: int) -> Interval:
        if by == 0:
            return ZERO
        if by < 0:
            return (-self) // -by
        low = None if self.low is None else self.low // by
        return Interval(low, None if self.high is None else self.high // by)

    def __mod__(self, by: int) -> Interval:
        if by == 0:
            return ZERO
        if by < 0:
            return -((-self) % -by)
        if self.low is not None and self.high is not None and self.low // by == self.high // by:
            return self.shifted(-(self.low // by) * by)
        return Interval(0, by - 1)

    def meet(self, other: Interval) -> Interval:
        """The values in both."""
        low = self.low if other.low is None else other.low
        if self.low is not None and other.low is not None:
            low = max(self.low, other.low)
        high = self.high if other.high is None else other.high
        if self.high is not None and other.high is not None:
            high = min(self.high, other.high)
        return Interval(low, high)

    def hull(self, other: Interval) -> Interval:
        """The least interval around both."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, high)

    def least(self, other: Interval) -> Interval:
        """The lesser of a value of each."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        if self.high is None or other.high is None:
            return Interval(low, other.high if self.high is None else self.high)
        return Interval(low, min(self.high, other.high))

    def greatest(self, other: Interval) -> Interval:
        """The greater of a value of each."""
        return -((-self).least(-other))

    @property
    def empty(self) -> bool:
        """Whether the interval contains no value."""
        return self.low is not None and self.high is not None and self.low > self.high

    @property
    def finite(self) -> bool:
        """Whether both bounds are finite."""
        return self.low is not None and self.high is not None


EVERYTHING: Final = Interval(None, None)
ZERO: Final = Interval(0, 0)
WORD: Final = Interval(-(1 << 63), (1 << 63) - 1)  # what a 64-bit index can hold

# An end as (sign of infinity, number), so that ends of both kinds compare.
_End = tuple[int, int]


def _low(of: Interval) -> _End:
    return (-1, 0) if of.low is None else (0, of.low)


def _high(of: Interval) -> _End:
    return (1, 0) if of.high is None else (0, of.high)


def _product(a: _End, b: _End) -> _End:
    if not a[0] and not b[0]:
        return 0, a[1] * b[1]
    sign = (a[0] or _sign(a[1])) * (b[0] or _sign(b[1]))
    return sign, 0


def _from_ends(low: _End, high: _End) -> Interval:
    return Interval(None if low[0] else low[1], None if high[0] else high[1])


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
