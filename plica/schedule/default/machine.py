"""Machines: the processor parameters that heuristics use, as plain data.

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

LINE: Final = 64  # bytes of a cache line, on all known machines
PAGE: Final = 4096  # bytes of a page, unless the system uses larger ones
MASKED: Final = 256  # vectors of this many bits, and longer ones, can be read and written in part
LONGEST: Final = 128 * 1024  # bytes of a panel beyond which its copy gets no faster
QUAD: Final = 4  # bytes per lane of a byte dot product
GIVEN_ROWS: Final = 2
"""Fewer rows than that are multiplied by a weight that is given before it would be packed."""

QUADS_NEAR: Final = 64 * 1024
"""Bytes of the data of a tile that is copied to where dot products read it in order, at most."""

WINDOW_LANES: Final = 16  # lanes of a dot product with separate data per lane
DIGITS: Final = 2
"""8-bit digits of the integer that a datum is rounded to, unless a contract allows fewer."""

BYTE: Final = 8  # bits of a digit
PAIR_LANES: Final = (4, 8, 16)
"""Lanes of dot products in which both sides have lanes, at most those of a vector."""

TILE_ROWS: Final = 32  # rows that a product of tiles of bytes has, at most: two registers of 16
TILE_QUADS: Final = 16  # groups of four bytes in a row of a tile register
MIN_ELEMENTS: Final = 512  # fewer elements than that are not worth a schedule
MIN_PRODUCTS: Final = 2048  # fewer products than that are not worth a schedule
MIN_SHARED_ELEMENTS: Final = 1 << 14  # fewer elements than that are not worth waking other cores
MIN_LANES: Final = 4
"""Vectors of fewer lanes are none, and places farther apart are read one by one."""

FEW_LANES: Final = 4  # lanes of a vector that are joined one by one
MAX_COPIED_COLUMNS: Final = 256
"""Neighbours that are copied at once, at most: by then rows are read as fast as they can be."""

PASSING: Final = 2  # the minimum number of registers for operands multiplied with vector lanes


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def waiting(copies: tuple[tuple[int, int], ...], many: int) -> int | None:
    """How many vectors of adjacent elements are live until products have used all their lanes, for
    loop copies with given distances, outermost first; None if no two copies share a vector.

    >>> waiting(((4, 1), (9, 64)), 4), waiting(((5, 1), (12, 1)), 4), waiting(((3, 64), (9, 64)), 4)
    (9, 4, None)
    """
    if min([apart for _, apart in copies]) >= many:
        return None
    # A vector lives through all copies of its loop and of inner loops. Copies of one row come in
    # pairs, so that it contains all of them; overlapping rows share vectors.
    through, *inside = dropwhile(lambda copy: copy[1] >= many, copies)
    rows = prod([count for count, apart in inside if apart >= many])
    near = [copy for copy in inside if copy[1] < many]
    if not near:
        return rows * ((through[0] - 1) * through[1] // many + 1)
    places = [range(0, count * max(apart, 1), max(apart, 1)) for count, apart in (through, *near)]
    asked = [sum(place) // many for place in product(*places)]
    return rows * _most_under_way(asked)


def _most_under_way(asked: Sequence[int]) -> int:
    """The maximum number of vectors live at once in a sequence of requests."""
    last = {vector: at for at, vector in enumerate(asked)}
    held, most = set[int](), 0
    for at, vector in enumerate(asked):
        held.add(vector)
        most = max(most, len(held))
        if last[vector] == at:
            held.discard(vector)
    return most


def worth(of: Scalar, digit: Scalar, digits: int = DIGITS) -> Scalar:
    """The contribution of a product by a digit to a sum, highest digit first."""
    return ShiftLeft(of, Lit(BYTE * (digits - 1), i32) - Cast(digit, i32) * Lit(BYTE, i32))


@frozen
class Dot:
    """A byte dot product instruction: its intrinsic, lanes, dtype of the broadcast operand, dtype
    of the per-lane operand, and number of terms."""

    intrinsic: str
    lanes: int
    dtype: DType
    weight: DType = i8
    terms: int = QUAD
    tiles: str = ""
    """The name prefix of byte tile products, if any."""
    windows: str = ""
    """The name of the intrinsic with separate data per lane, if any: it takes rows of WINDOW_LANES
    bytes, one per term."""
    pairs: str = ""
    """The name prefix of intrinsics with lanes in both operands, one of them digits of integers, if
    any; the suffix is the number of lanes, from PAIR_LANES, and that of digits, at most DIGITS."""
    words: str = ""
    """The name prefix of intrinsics that unpack low-bit numbers, if any; the suffix is the number
    of bits."""
    wide: Dot | None = None
    """The instruction that adds products of pairs of 16-bit integers in as many lanes, if any."""


@frozen
class Machine:
    """Vector bits, number of vector registers, bytes of the caches from the nearest, number of
    cores, the byte dot product, if any, and throughput per cycle."""

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
        """The number of elements per vector."""
        return max(1, self.vector // (8 * dtype.bytes))

    def cache(self, level: int) -> int:
        """The bytes of a cache, 1 the nearest."""
        return self.caches[min(level, len(self.caches)) - 1]

    @property
    def panel(self) -> int:
        """The maximum bytes of a copy that is read repeatedly: a quarter of the second cache,
        because weights and results pass through as well."""
        return min(LONGEST, self.cache(2) // 4)

    @property
    def near(self) -> int:
        """The maximum bytes of a copy per point of the batch axes: it stays in half of the second
        cache until it is read, and is on a stack."""
        return min(2 * LONGEST, self.cache(2) // 2)
