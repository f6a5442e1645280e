"""Tile maps: how the copy engine of a GPU finds tiles of a tensor in memory.

>>> whole = TileMap(0, 2, (4096, 1024), (8192,), (64, 128))
>>> whole.bytes
16384
>>> tile_from(tile_data(whole), 1) == whole
True
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from plica.runtime.error import damaged

SIZE: Final = 128  # bytes of a map
ALIGNMENT: Final = 64

MAX_DEPTH: Final = 5  # axes of a tensor, at most
_KINDS: Final = {1: 0, 2: 1, 4: 2, 8: 4}
"""Unsigned numbers of this many bytes, as the driver calls them: what they mean is no matter
here."""

_SWIZZLE, _PROMOTION = 3, 3
"""Swizzling by rows of 128 bytes; promotion of 256 bytes to the second-level cache."""


@dataclass(frozen=True, slots=True)
class TileMap:
    """The tensor's argument number, bytes per element, the sizes of the axes from the innermost,
    all but the innermost stride in bytes, and the extents of a tile."""

    argument: int
    element: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of a tile."""
        return prod(self.box) * self.element

    def request(self, address: int) -> tuple[ctypes.Array[ctypes.c_char], int, tuple[object, ...]]:
        """Storage for the map, the aligned address in it, and the arguments of the driver call."""
        rank = len(self.sizes)
        held = ctypes.create_string_buffer(SIZE + ALIGNMENT)
        at = -(-ctypes.addressof(held) // ALIGNMENT) * ALIGNMENT
        asked = (
            ctypes.c_void_p(at),
            ctypes.c_int(_KINDS[self.element]),
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*self.sizes),
            (ctypes.c_uint64 * max(1, rank - 1))(*self.strides),
            (ctypes.c_uint32 * rank)(*self.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),
            ctypes.c_int(_SWIZZLE),
            ctypes.c_int(_PROMOTION),
            ctypes.c_int(0),
        )
        return held, at, asked


def tile_data(of: TileMap) -> list[Any]:
    """The map as JSON data."""
    return [of.argument, of.element, list(of.sizes), list(of.strides), list(of.box)]


def tile_from(given: object, arguments: int) -> TileMap:
    """The map that was written down; nothing in it is believed."""
    match given:
        case [int(argument), int(element), [*sizes], [*strides], [*box]] if (
            0 <= argument < arguments and element in _KINDS
        ):
            numbers = [_numbers(each, limit) for each, limit in
                       ((sizes, 1 << 32), (strides, 1 << 40), (box, 256))]  # fmt: skip
            if 2 <= len(sizes) <= MAX_DEPTH and len(sizes) == len(box) == len(strides) + 1:
                return TileMap(argument, element, *numbers)
        case _:
            pass
    raise damaged("A map of tiles in the artefact is damaged.", repr(given)[:200])


def _numbers(given: list[object], limit: int) -> tuple[int, ...]:
    found = tuple([each for each in given if type(each) is int and 0 < each <= limit])
    if len(found) != len(given):
        raise damaged("A map of tiles in the artefact is damaged.", repr(given)[:200])
    return found
