"""Which tiles sums of open number are made in: vectors of outputs, by a number of neighbours."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import UNDER_WAY
from plica.schedule.default.tile import ELEMENT_NEAR, VECTOR_AWAY, RegisterTile, fits
from plica.schedule.default.written_terms import BRIEF

USUAL: Final = range(4, 65, 3)  # how long rows of images are, deep in a network and near its input
TURNED: Final = 10
"""Cycles for each neighbour of a tile and vector of outputs, as these are turned before they are
stored, a lane in a cycle; as many are turned as the next power of two says."""

ANOTHER: Final = 1.1
"""How much faster two texts of a tile have to be than one, which is compiled in half the time."""

ANOTHER_SOON: Final = 1.3  # the same where code is wanted soon
WRITTEN_SOON: Final = 0.05
"""How much more each sum of a tile counts where code is wanted soon: each has a line of its own in
all that a text does."""


@lru_cache(maxsize=256)
def open_passes(
    outputs: int, terms: int, lanes: int, rows: tuple[int, ...], machine: Machine
) -> tuple[RegisterTile, tuple[int, ...]]:
    """The tile that rows of such lengths take least for, together with how many neighbours the
    tiles for what is left of a row have, and those for what fills none of these, which together
    are no longer a text than the first.  Outputs that fill no tile have one of their own."""
    vectors = -(-outputs // lanes)

    def each(wide: int, steps: int, narrower: tuple[int, ...]) -> float:
        often, left = _shares(steps, rows)
        took = often * cycles(wide, steps)
        for n, count in _tiles_after(steps, narrower, left):
            took += count * cycles(wide, n)
        return took

    def cost(tile: RegisterTile, narrower: tuple[int, ...]) -> float:
        groups, left = divmod(vectors, tile.vectors)
        whole = groups * each(tile.vectors, tile.steps, narrower)
        if left:
            whole += each(left, tile.steps, narrower)
        another = outputs % (tile.vectors * lanes) != 0
        if not machine.soon:
            return whole * (ANOTHER if another else 1)
        texts = another + (len(rows) > 1 or rows[0] % tile.steps != 0)
        return whole * ANOTHER_SOON**texts * (1 + WRITTEN_SOON * tile.vectors * tile.steps)

    def saved(wide: int) -> float:
        """Cycles a term that a block's weights are read in less, where the nearest cache has them
        from the tile before: all tiles of a row take the same.  With long vectors wide and short
        tiles were not seen to gain by it."""
        wide_bytes = machine.vector // 8
        held = wide_bytes <= BRIEF and 2 * terms * wide * wide_bytes <= machine.cache(1)
        return wide * (VECTOR_AWAY - ELEMENT_NEAR) if held else 0

    @cache
    def cycles(wide: int, steps: int) -> float:
        product = RegisterTile(wide, steps).cycles(rates=machine.rates) - saved(wide)
        return terms * product + (TURNED * (1 << (steps - 1).bit_length()) + lanes) * wide

    choices = [
        (tile, narrower)
        for tile in _fitting(machine.registers, machine.masks)
        if tile.vectors <= vectors
        for narrower in (
            _widths(tile.steps, machine.soon)
            if len(rows) > 1
            else [(rows[0] % tile.steps or tile.steps,)]
        )
    ]
    if machine.soon:  # shorter than that they are no gain, and another schedule is asked for
        busy = [choice for choice in choices if choice[0].vectors * choice[0].steps >= UNDER_WAY]
        choices = busy or choices
    return min(choices, key=lambda each: cost(*each))


@cache
def _fitting(registers: int, masks: bool) -> list[RegisterTile]:
    """The tiles that a given number of registers hold, with what is turned where lanes are not
    masked."""
    return [
        tile
        for m in range(1, registers + 1)
        for r in range(1, registers)
        if fits(tile := RegisterTile(m, r), registers - (0 if masks else r))
    ]


@cache
def _widths(steps: int, soon: bool) -> list[tuple[int, ...]]:
    """How wide the tiles for what is left may be: of one width, or where there is time of two, the
    first of which hangs no further over the end than the second."""
    found: list[tuple[int, ...]] = [(n,) for n in range(1, steps + 1)]
    if not soon:
        for last in range(1, steps):
            found += [(n, last) for n in range(last + 1, min(2 * last, steps - last) + 1)]
    return found


@lru_cache(maxsize=256)
def _shares(steps: int, rows: tuple[int, ...]) -> tuple[float, tuple[float, ...]]:
    """How many whole tiles there are for each place of rows, and how often this many are left."""
    left = [0.0] * steps
    for row in rows:
        left[row % steps] += 1 / row
    return sum(row // steps / row for row in rows), tuple(left)


@lru_cache(maxsize=4096)
def _tiles_after(
    steps: int, narrower: tuple[int, ...], often: tuple[float, ...]
) -> tuple[tuple[int, float], ...]:
    """How many tiles of each width are taken for what is left, where this many are left so
    often."""
    counts = dict.fromkeys(narrower, 0.0)
    for left in range(1, steps):
        rest = left
        for n, after in zip(narrower, (*narrower[1:], 0), strict=True):
            count = (rest + n - after - 1) // n
            counts[n] += count * often[left]
            rest -= count * n
    return tuple(counts.items())
