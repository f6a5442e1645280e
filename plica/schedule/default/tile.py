"""Register tiles: how many sums are under way at once, from the number of vector registers.

A tile is `vectors` x `steps` accumulators. Each term of the sum takes `vectors` vector loads,
`steps` element loads, and vectors x steps multiply-adds. Throughput and latency are in the machine
description.

>>> best_tile(4, 56, 32), best_tile(1, 13, 16)
(RegisterTile(vectors=2, steps=14), RegisterTile(vectors=1, steps=13))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd
from typing import Final

from attrs import frozen

from plica.ir.loop.scalar import Scalar
from plica.ir.type import polynomial
from plica.runtime.machine import CycleRates
from plica.schedule.default.machine import LINE, PAGE, Machine, waiting

USUAL: Final = CycleRates()  # typical rates, without a machine description
READ: Final = 0.75
"""Which part of the reads that could begin do: some wait for a line, or for another's bank."""


def reads_of(rates: CycleRates) -> float:
    """Vectors that are read in a cycle, in the mean."""
    return READ * rates.loads


def apart(rates: CycleRates) -> CycleRates:
    """The rates if elements are scattered and each takes an instruction: part of the issue slots
    stall, like the loads."""
    return replace(rates, issue=READ * rates.issue)


USUAL_OPEN_SIZE: Final = 60
"""The length for which open axes are reckoned, which all tiles of open steps divide."""

MAX_OPEN_STEPS: Final = 6
"""The maximum number of steps of a tile where their number is open: each number that may be left
over has a text of its own."""

LOOP: Final = 5
"""Loop overhead in instructions: advancing data and weight addresses, count, compare and jump."""

VECTOR_AWAY: Final = 1 / 2  # cycles added by a vector whose line comes from the second cache
ELEMENT_NEAR: Final = 1 / 16  # the same for an element from the nearest cache
WAYS: Final = 8  # rows at half-page distances that stay in the nearest cache, limited by its ways

LARGE, LARGE_WAYS = 64 * 1024, 4
"""Bytes of a nearest cache whose ways are longer than a page, from there on, and how many it has:
rows that are so far apart as such a way is long have one line each in it."""


def most_steps(apart: int, near: int) -> int | None:
    """The maximum steps of a tile with a given distance in bytes, for the nearest cache; None if
    unlimited.

    >>> most_steps(16384, 64 * 1024), most_steps(8192, 64 * 1024), most_steps(16384, 32 * 1024)
    (4, 8, 8)
    """
    if apart and near >= LARGE and apart % (near // LARGE_WAYS) == 0:
        return LARGE_WAYS
    return WAYS if apart and apart % (PAGE // 2) == 0 else None


@frozen
class RegisterTile:
    """A given number of vectors side by side, for a given number of steps of another axis."""

    vectors: int
    steps: int

    def cycles(self, lines: float = 1, rates: CycleRates = USUAL, size: int = LINE) -> float:
        """The cost of one term's products, with a number of cache lines per vector, and bytes used
        of them."""
        many = self.vectors * self.steps
        reads = lines * self.vectors + self.steps
        begun = (many + self.vectors + self.steps + LOOP) / rates.issue
        busy = max(many / rates.fma, reads / reads_of(rates), begun, rates.latency)
        return busy + self.vectors * VECTOR_AWAY * size / LINE + self.steps * ELEMENT_NEAR


def fits(tile: RegisterTile, registers: int) -> bool:
    """Whether accumulators, a row of vectors and an element are all in registers."""
    return tile.vectors * (tile.steps + 1) + 1 <= registers


SINGLES: Final = 8  # of this many registers one was left out before, for single elements that wait


def elements_waiting(terms: int, near: int, apart: int, machine: Machine) -> Callable[[int], int]:
    """The registers that hold elements of steps, beyond those for single ones, if a number of terms
    are unrolled: `near` is the distance of terms, `apart` that of steps, in bytes.

    Steps that read the same vectors need none besides for single elements; others read ahead.

    >>> machine = Machine(128, 29)
    >>> [elements_waiting(4, 4, 256, machine)(9), elements_waiting(3, 4, 8, machine)(12)]
    [9, 3]
    """
    vector = machine.vector // 8
    less = machine.registers // SINGLES if apart < vector else 0
    return lambda steps: max(0, (waiting(((terms, near), (steps, apart)), vector) or 0) - less)


def bytes_of_line(size: int, between: int) -> int:
    """The used bytes of a line loaded for a packed vector, relative to those for elements: all,
    unless steps are so far `between` that each element is alone on a line as well."""
    return size if between >= LINE else LINE


def cost(  # noqa: PLR0917  # as of a tile
    tile: RegisterTile,
    vectors: int,
    steps: int,
    lines: float = 1,
    rates: CycleRates = USUAL,
    size: int = LINE,
) -> float:
    """The cycles for one term of all sums of a whole; what fills no tile has a smaller one.

    Each vector load takes a number of cache lines and uses a number of their bytes.
    """
    found = 0.0
    for wide, many in parts(vectors, tile.vectors):
        for high, often in parts(steps, tile.steps):
            found += many * often * RegisterTile(wide, high).cycles(lines, rates, size)
    return found


def parts(whole: int, part: int) -> list[tuple[int, int]]:
    """How often a part fits into a whole, and the remainder."""
    count, rest = divmod(whole, part)
    return [(size, times) for size, times in ((part, count), (rest, 1)) if size and times]


RAGGED = 1.02  # the cost factor of a last tile with a different size, due to more code


def best_tile(
    vectors: int,
    steps: int,
    registers: int,
    rates: CycleRates = USUAL,
    *,
    exact: bool = False,
    most: int | None = None,
    held: int | None = None,
    waits: Callable[[int], int] = lambda _: 0,
    size: int = LINE,
    uneven: Callable[[RegisterTile], float] = lambda _: 1.0,
) -> RegisterTile:
    """The tile that costs least for a given number of vectors and steps, of which it has at most
    `most`.

    If `exact` it divides both; with `held` vectors if packing fixes their number. The elements of a
    number of steps are in a number of vectors, each of which `waits` until the tile has used all of
    it. A vector uses a number of bytes of its lines. Cores that share tiles are busy for `uneven`
    times the average.
    """
    found, least = RegisterTile(held or 1, 1), float("inf")
    for m in range(1, min(vectors, registers) + 1) if held is None else (held,):
        for r in range(1, min(steps, registers, most or steps) + 1):
            tile = RegisterTile(m, r)
            if not fits(tile, registers - waits(r)):
                break
            if exact and (vectors % m or steps % r):
                continue
            each = cost(tile, vectors, steps, rates=rates, size=size)
            each *= RAGGED ** (bool(vectors % m) + bool(steps % r))
            if each < least and (each := each * uneven(tile)) < least:
                found, least = tile, each
    return found


def best_open_tile(
    vectors: int,
    steps: Scalar,
    registers: int,
    rates: CycleRates = USUAL,
    *,
    held: int | None = None,
    size: int = LINE,
) -> RegisterTile:
    """The tile that costs least for a given number of vectors and an open number of steps.

    What is left of `2 * n` steps is no remainder of `n` where tiles have an even number of them, so
    a common factor of all sizes is divided by the tile's or shares no factor with it.

    >>> from plica.ir.type import dim_var
    >>> n = dim_var("n")
    >>> [best_open_tile(4, n * count, 32).steps for count in (1, 2, 4)]
    [6, 5, 5]
    """
    common = gcd(*[factor for _, factor in polynomial(steps).values()])
    tiles = [
        RegisterTile(m, r)
        for m in (range(1, vectors + 1) if held is None else (held,))
        for r in range(1, MAX_OPEN_STEPS + 1) if common % r == 0 or gcd(common, r) == 1
    ]  # fmt: skip
    fitting = [each for each in tiles if fits(each, registers)]

    def cycles(tile: RegisterTile) -> float:
        ragged = RAGGED if vectors % tile.vectors else 1
        return ragged * cost(tile, vectors, USUAL_OPEN_SIZE, rates=rates, size=size)

    return min(fitting, key=cycles, default=RegisterTile(held or 1, 1))


WIDENED: Final = 1.25
"""Cycles for unpacking a vector of low-bit numbers and converting it to floats."""


def widening_tile(
    vectors: int, steps: int, registers: int, rates: CycleRates = USUAL, held: int | None = None
) -> RegisterTile:
    """The tile for a weight whose vectors are unpacked before each tile of steps; with `held`
    vectors if packing fixes their number.

    >>> widening_tile(64, 1, 32), widening_tile(64, 8, 32)
    (RegisterTile(vectors=4, steps=1), RegisterTile(vectors=2, steps=8))
    """
    found, least = RegisterTile(held or 1, 1), float("inf")
    for m in (1, 2, 4) if held is None else (held,):
        for r in range(1, steps + 1):
            tile = RegisterTile(m, r)
            if m > max(vectors, held or 1) or not fits(tile, registers):
                break
            cost_ = sum(
                often * max(m * (high / rates.fma + WIDENED), rates.latency * 2)
                for high, often in parts(steps, r)
            )
            if (each := cost_ * -(-vectors // m)) < least:
                found, least = tile, each
    return found
