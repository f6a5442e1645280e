"""Writes: tiles of which the last overlaps another fill a box."""

from __future__ import annotations

import pytest

from plica.analysis.write import Write, filled
from plica.ir.loop.scalar import Min, Scalar, index
from plica.ir.loop.tensor import axis
from plica.ir.type.dim import known

TILE, J = axis("i"), axis("j")


def sizes(place: Scalar, tiles: int, length: int) -> list[int | None]:
    """The extents of a write as boxes, joined with one of a single element before it."""
    write = Write((place + 1,), ((TILE, index(tiles)), (J, index(length))))
    return [known(extent) for each in filled([Write((index(0),), ()), write])
            for _, extent in each.loops]  # fmt: skip


@pytest.mark.parametrize(("extent", "length"), [(28, 16), (20, 8), (17, 16), (9, 4), (33, 16)])
def test_the_last_tile_may_overlap_the_one_before(extent: int, length: int) -> None:
    start = Min(TILE * length, index(extent - length))
    assert sizes(start + J, -(-extent // length), length) == [extent + 1]


@pytest.mark.parametrize(
    ("place", "tiles", "length"),
    [
        (Min(TILE * 16, index(12)) + J, 3, 16),  # there are more tiles than to the end
        (Min(TILE * 16, index(12)) + J, 2, 8),  # of which each leaves a gap
        (Min(TILE * 16, index(40)) + J, 2, 16),  # it never ends there
        (Min(TILE * 16, index(12)) + J + TILE, 2, 16),
        (Min(TILE * 16 + 1, index(12)) + J, 2, 16),
        (Min(TILE * 16, index(-1)) + J, 1, 16),
    ],
)
def test_others_are_not_taken_for_boxes(place: Scalar, tiles: int, length: int) -> None:
    assert sizes(place, tiles, length) == [tiles, length]
