"""Tiles fit the registers, and divide what they should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plica.schedule.default.tile import RegisterTile, best_tile, cost, fits


@given(st.integers(1, 64), st.integers(1, 200), st.sampled_from((8, 16, 32)), st.booleans())
def test_a_tile_fits(vectors: int, steps: int, registers: int, exact: bool) -> None:
    tile = best_tile(vectors, steps, registers, exact=exact)
    assert fits(tile, registers)
    assert not exact or (vectors % tile.vectors == 0 and steps % tile.steps == 0)
    assert cost(tile, vectors, steps) <= cost(RegisterTile(1, 1), vectors, steps)
