"""Register tiles: how many sums are under way at once, from the number of vector registers.

A tile is `vectors` x `steps` accumulators.  For each product of the sum, `vectors` vectors and
`steps` single elements are read, and vectors x steps multiply-adds done.  A processor does about
two of these and fewer than two reads at once, and a multiply-add takes about four cycles to come
through.

>>> best_tile(4, 56, 32, exact=True)
Tile(vectors=2, steps=14)
"""

from __future__ import annotations

from attrs import frozen

LATENCY = 4
"""Cycles before the result of a multiply-add can be used."""

AT_ONCE = 2
"""Multiply-adds in one cycle."""

READS = 1.5
"""Reads in one cycle."""


@frozen
class Tile:
    """So many vectors side by side, for so many steps of another axis."""

    vectors: int
    steps: int

    @property
    def cycles(self) -> float:
        """What the products of one term cost."""
        many = self.vectors * self.steps
        reads = self.vectors + self.steps
        # Vectors come from a farther cache, single elements from the nearest.
        return max(many / AT_ONCE, reads / READS, LATENCY) + self.vectors / 2 + self.steps / 16


def fits(tile: Tile, registers: int) -> bool:
    """Whether accumulators, a row of vectors and an element are all in registers."""
    return tile.vectors * (tile.steps + 1) + 1 <= registers


def cost(tile: Tile, vectors: int, steps: int) -> float:
    """The cycles for one term of all sums of a whole."""
    return -(-vectors // tile.vectors) * -(-steps // tile.steps) * tile.cycles


def best_tile(
    vectors: int, steps: int, registers: int, *, exact: bool, most: int | None = None
) -> Tile:
    """The tile that costs least for so many vectors, which it divides, and steps.

    If `exact` it divides the steps, too.  It has no more than `most` of these.
    """
    found = Tile(1, 1)
    for m in range(1, min(vectors, registers) + 1):
        if vectors % m:
            continue
        for r in range(1, min(steps, registers, most or steps) + 1):
            tile = Tile(m, r)
            if not fits(tile, registers) or (exact and steps % r):
                continue
            if cost(tile, vectors, steps) < cost(found, vectors, steps):
                found = tile
    return found
