"""Machines: the few facts about a processor that rules of thumb ask for, as plain data.

>>> Machine(vector=512, registers=32).lanes(f32)
16
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import dropwhile, product
from math import prod
from typing import Final

from attrs import field, frozen

from plica.ir.loop.scalar import Cast, Lit, Scalar, ShiftLeft
from plica.ir.type import DType, f32, i8, i32
from plica.runtime.machine import CycleRates

__all__ = ["DIGITS", "PAIR_LANES", "QUAD", "Dot", "Machine", "f32", "worth"]

LINE: Final = 64
"""Bytes of a line of a cache, which come from memory together: this many on all machines known."""

PAGE: Final = 4096
"""Bytes that are one entry of what translates addresses, where a system does not ask for more."""

MASKED: Final = 256
"""Vectors of this many bits, and longer ones, can be read and written in part."""

LONGEST: Final = 128 * 1024
"""Bytes of a panel by which its copy goes as fast as it can."""

QUAD: Final = 4
"""How many bytes a dot product of bytes takes for each lane."""

GIVEN_ROWS: Final = 2
"""Fewer rows than that are multiplied by a weight that is given before it would be packed."""

QUADS_NEAR: Final = 64 * 1024
"""Bytes of the data of a tile that is copied to where dot products read it in order, at most."""

WINDOW_LANES: Final = 16
"""Lanes of a dot product in which each has data of its own."""

DIGITS: Final = 2
"""Bytes of an integer that stands for a float where both sides of a dot product have lanes."""

BYTE: Final = 8
"""Bits of a digit."""

PAIR_LANES: Final = (4, 8, 16)
"""Lanes of dot products in which both sides have lanes, at most those of a vector."""

TILE_ROWS: Final = 32
"""Rows that a product of tiles of bytes has, at most: two registers of 16."""

TILE_QUADS: Final = 16
"""How many times four bytes of a row a register of tiles holds."""

MIN_ELEMENTS: Final = 512
"""Fewer elements than that are not worth a schedule."""

MIN_PRODUCTS: Final = 2048
"""Fewer products than that are not worth a schedule."""

MIN_SHARED_ELEMENTS: Final = 1 << 14
"""Fewer elements than that are not worth waking other cores."""

MIN_LANES: Final = 4
"""Vectors of fewer lanes are none, and places farther apart are read one by one."""

FEW_LANES: Final = 4
"""Lanes of a vector that are joined one by one."""

MAX_COPIED_COLUMNS: Final = 256
"""Neighbours that are copied at once, at most: by then rows are read as fast as they can be."""

PASSING: Final = 2
"""Registers for what is multiplied with the lanes of vectors, at least."""


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def waiting(copies: tuple[tuple[int, int], ...], many: int) -> int | None:
    """How many vectors of a given number of neighbours wait at once until products have taken all
    of their lanes, where copies of loops, from the outermost on, read so far apart; None where no
    two copies read of one vector.

    >>> waiting(((4, 1), (9, 64)), 4), waiting(((5, 1), (12, 1)), 4), waiting(((3, 64), (9, 64)), 4)
    (9, 4, None)
    """
    if min([apart for _, apart in copies]) >= many:
        return None
    # A vector waits for all copies of the loop through it and of those inside.  Those of one row
    # come in pairs, so that it has all of them; rows that overlap have them in common.
    through, *inside = dropwhile(lambda copy: copy[1] >= many, copies)
    rows = prod([count for count, apart in inside if apart >= many])
    near = [copy for copy in inside if copy[1] < many]
    if not near:
        return rows * ((through[0] - 1) * through[1] // many + 1)
    places = [range(0, count * max(apart, 1), max(apart, 1)) for count, apart in (through, *near)]
    asked = [sum(place) // many for place in product(*places)]
    return rows * _most_under_way(asked)


def _most_under_way(asked: Sequence[int]) -> int:
    """How many of the vectors that are asked for one after another are there at once, at most."""
    last = {vector: at for at, vector in enumerate(asked)}
    held, most = set[int](), 0
    for at, vector in enumerate(asked):
        held.add(vector)
        most = max(most, len(held))
        if last[vector] == at:
            held.discard(vector)
    return most


def worth(of: Scalar, digit: Scalar, digits: int = DIGITS) -> Scalar:
    """What a product by a digit adds to a sum, the highest digit first."""
    return ShiftLeft(of, Lit(BYTE * (digits - 1), i32) - Cast(digit, i32) * Lit(BYTE, i32))


@frozen
class Dot:
    """An instruction for dot products of bytes: its intrinsic, how many lanes it has, the dtype
    of what all lanes share, the one of what each has for itself, and how many terms it takes."""

    intrinsic: str
    lanes: int
    dtype: DType
    weight: DType = i8
    terms: int = QUAD
    tiles: str = ""
    """What the names of intrinsics begin with that multiply tiles of bytes, if there are some."""
    windows: str = ""
    """The name of the intrinsic in which each lane has data of its own, if there is one: it takes
    rows of WINDOW_LANES bytes, as many as there are terms."""
    pairs: str = ""
    """What the names of intrinsics begin with in which both sides have lanes, if there are some,
    one side DIGITS of bytes; they end with how many lanes, of PAIR_LANES."""
    words: str = ""
    """What the names of intrinsics begin with that take numbers of few bits out of words, if there
    are some; they end with how many bits."""


@frozen
class Machine:
    """Bits of a vector, how many vectors are at hand, bytes of the caches from the nearest on, how
    many cores work at once, the dot product of bytes, if there is one, and what goes on in a
    cycle."""

    vector: int
    registers: int
    caches: tuple[int, ...] = (32 * 1024, 512 * 1024)
    cores: int = 1
    dot: Dot | None = None
    rates: CycleRates = field(factory=CycleRates)
    soon: bool = False
    """Whether code is wanted soon rather than fast code."""
    zero_rows: bool = True
    """Whether zeros are read for a row outside of an image, whose address is chosen before the loop
    along the row; where not, each element asks."""

    @property
    def masks(self) -> bool:
        """Whether vectors can be read and written in part."""
        return self.vector >= MASKED

    def lanes(self, dtype: DType) -> int:
        """How many elements a vector holds."""
        return max(1, self.vector // (8 * dtype.bytes))

    def cache(self, level: int) -> int:
        """The bytes of a cache, 1 the nearest."""
        return self.caches[min(level, len(self.caches)) - 1]

    @property
    def panel(self) -> int:
        """Bytes of what is copied to be read again and again, at most: a quarter of the second
        cache, where weights and results pass through as well."""
        return min(LONGEST, self.cache(2) // 4)

    @property
    def near(self) -> int:
        """Bytes of what is copied anew for each place of the axes that data and weights share, at
        most: it stays in half of the second cache until it is read, and lies on a stack."""
        return min(2 * LONGEST, self.cache(2) // 2)
