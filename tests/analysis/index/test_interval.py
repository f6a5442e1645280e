"""Intervals hold every value that their operands can give."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.index.interval import EVERYTHING, Interval

small = st.integers(-9, 9)
ends = st.one_of(st.none(), small)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = draw(ends), draw(ends)
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Interval(low, high)


def values(of: Interval) -> list[int]:
    return [n for n in range(-15, 16) if n in of]


@given(intervals(), intervals())
def test_sound(a: Interval, b: Interval) -> None:
    for x in values(a)[:9]:
        assert -x in -a
        assert x in a.hull(b)
        for y in values(b)[:9]:
            assert x + y in a + b
            assert x * y in a.times(b)
            assert min(x, y) in a.least(b)
            assert max(x, y) in a.greatest(b)
        assert (x in a.meet(b)) == (x in b)


@given(intervals(), small)
def test_by_a_number(a: Interval, n: int) -> None:
    for x in values(a):
        assert x * n in a.scaled(n)
        assert x + n in a.shifted(n)
        assert (x // n if n else 0) in a // n
        assert (x % n if n else 0) in a % n


def test_tight() -> None:
    assert Interval(-3, 8) // 4 == Interval(-1, 2)
    assert Interval(9, 11) % 4 == Interval(1, 3)
    assert Interval(-3, 2).times(Interval(-1, None)) == EVERYTHING
    assert Interval(3, 2).empty
    assert not Interval(3, None).finite
