"""Bounds: what conditions show of an index holds for every size and place."""

from __future__ import annotations

from hypothesis import assume, given, strategies as st

from plica.analysis.constant_bound import DIM_RANGE, KnownBounds, facts_of
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import axis
from plica.ir.type.dim import dim_var

ROWS, STRIP, LANE = dim_var("m"), axis("strip"), axis("lane")


def shown(length: int, width: int, lanes: int, begin: int) -> bool:
    """Whether lanes of a strip are shown to be inside of open rows of a known length."""
    bounds = KnownBounds()
    bounds.ranges = {ROWS: DIM_RANGE, STRIP: DIM_RANGE, LANE: (0, lanes - 1)}
    facts = facts_of(sc.Lt(STRIP, ROWS * length // width))
    return bounds.is_inside(STRIP * width + LANE + begin, ROWS * length, facts)


@given(st.integers(1, 300), st.sampled_from([4, 8, 16, 32, 64, 128]))
def test_strips_of_open_rows_of_any_length_are_inside(length: int, width: int) -> None:
    assert shown(length, width, width, 0)


@given(st.sampled_from([2, 4, 8, 16, 24]), st.booleans())
def test_what_fills_no_strip_is_inside(width: int, beside: bool) -> None:
    bounds = KnownBounds()
    bounds.ranges = {ROWS: DIM_RANGE, STRIP: DIM_RANGE, LANE: DIM_RANGE}
    facts = list(facts_of(sc.Lt(LANE, ROWS % width)))
    if beside:
        facts += facts_of(sc.Lt(STRIP, (ROWS + (width - 1)) // width - ROWS // width))
    place = ROWS // width * width + LANE
    assert bounds.is_inside(place, ROWS, facts)
    assert not bounds.is_inside(place + 1, ROWS, facts)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 24), st.integers(-4, 4))
def test_what_is_shown_holds(length: int, width: int, lanes: int, begin: int) -> None:
    assume(shown(length, width, lanes, begin))
    for rows in range(12):
        for strip in range(rows * length // width):
            assert strip * width + begin >= 0
            assert strip * width + lanes - 1 + begin < rows * length
