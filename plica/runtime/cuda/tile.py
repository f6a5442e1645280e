"""Tile maps: how the copy engine of a GPU finds tiles of a tensor in memory.

>>> whole = TileMap(0, 2, (4096, 1024), (8192,), (64, 128))
>>> whole.bytes
16384
>>> plain(whole)
[0, 2, [4096, 1024], [8192], [64, 128]]
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Final

from plica.runtime.typed_json import Annotated, ClassVar, dataclass, plain

__all__ = ["ALIGNMENT", "SIZE", "TileMap", "plain"]

SIZE: Final = 128  # bytes of a map
ALIGNMENT: Final = 64

MAX_ARGUMENTS: Final = 1024
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

    DAMAGED: ClassVar = "A map of tiles in the artefact is damaged."

    argument: Annotated[int, range(MAX_ARGUMENTS)]
    element: Annotated[int, _KINDS]
    sizes: tuple[Annotated[int, range(1, 1 + (1 << 32))], ...]
    strides: tuple[Annotated[int, range(1, 1 + (1 << 40))], ...]
    box: tuple[Annotated[int, range(1, 257)], ...]

    @property
    def is_possible(self) -> bool:
        """Whether a tile has as many axes as the tensor, and not more than can be."""
        rank = len(self.sizes)
        return 2 <= rank <= MAX_DEPTH and rank == len(self.box) == len(self.strides) + 1

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
