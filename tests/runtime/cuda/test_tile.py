"""Maps of tiles: as data and back; what is damaged is told."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given, strategies as st

from plica.runtime.cuda.tile import ALIGNMENT, MAX_ARGUMENTS, TileMap
from plica.runtime.error import ArtefactError
from plica.runtime.typed_json import plain, read

numbers = st.integers(1, 200)


@st.composite
def maps(draw: st.DrawFn) -> TileMap:
    rank = draw(st.integers(2, 5))
    sizes, strides, box = (
        tuple(draw(st.lists(numbers, min_size=count, max_size=count)))
        for count in (rank, rank - 1, rank)
    )
    return TileMap(
        draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 4, 8])), sizes, strides, box
    )


@given(maps())
def test_maps_come_back(of: TileMap) -> None:
    assert read(TileMap, plain(of)) == of


@given(maps())
def test_maps_are_written_where_the_driver_can(of: TileMap) -> None:
    memory, at, asked = of.request(1 << 20)
    assert at % ALIGNMENT == 0
    assert ctypes.addressof(memory) <= at <= ctypes.addressof(memory) + len(memory) - 128
    assert list(asked[4]) == list(of.sizes)  # type: ignore[call-overload]  # an array of numbers


GOOD = plain(TileMap(0, 2, (64, 8), (128,), (64, 8)))


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (0, MAX_ARGUMENTS),
        (0, -1),
        (1, 3),
        (2, [64]),
        (2, [64, 0]),
        (3, [128, 1]),
        (4, [64, 257]),
        (4, "no"),
    ],
)
def test_damaged_maps_are_told(place: int, other: object) -> None:
    given_ = [*GOOD]
    given_[place] = other
    with pytest.raises(ArtefactError, match="map of tiles"):
        read(TileMap, given_)
