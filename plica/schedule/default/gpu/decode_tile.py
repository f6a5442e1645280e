"""How few rows to many keys are cut: parts of the keys, rows of a block, threads of a row.

A row of keys or values is read by as many threads as it has vectors of 16 bytes, so that a warp has
several of them at once; parts are as long as they can be while all processors have enough of them.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.schedule.default.gpu.attention_chain import Chain, neighbours
from plica.schedule.default.gpu.cost import STREAM, ends_of
from plica.schedule.default.gpu.machine import LANES, Gpu, power_of_two

WARPS: Final = 4  # warps of a block
TOGETHER: Final = 8
"""Rows that a block has, and vectors that a thread has or has under way, at most."""

ROWS: Final = 32
"""Rows that read the same keys, at most: more are worth tiles of tensor cores or of threads."""

FEW_ROWS: Final = 2  # the number of rows up to which reading dominates
HELD: Final = 64  # the maximum number of an operand's elements in a thread's registers
BLOCKS: Final = 4
"""Blocks that a processor runs at once: a few more than all processors run are a second turn, in
which most have nothing to do."""

PARTS: Final = 128  # parts that are joined, at most
LONGEST: Final = 512
"""Keys of a part, at most: longer ones leave processors without work at the end."""

FEW: Final = 4 / 128
"""Cycles of a processor for an element of a key or value and a row, where threads multiply."""


@frozen
class KeyLanes:
    """How threads share an element's row: elements per thread, threads across, and iterations."""

    near: int
    across: int
    turns: int

    @property
    def beside(self) -> int:
        """Rows that a block reads at once."""
        return WARPS * LANES // self.across

    @property
    def held(self) -> int:
        """Elements of a row that a thread has."""
        return self.near * self.turns


def lanes_for(near: int, size: int, turns: int = 1) -> KeyLanes:
    """How a row of some elements is shared, as many of which as are neighbours go at once.

    >>> lanes_for(8, 128), lanes_for(4, 80), lanes_for(8, 128, 2)
    (KeyLanes(near=8, across=16, turns=1), KeyLanes(near=4, across=32, turns=1), KeyLanes(near=8, across=8, turns=2))
    """  # noqa: E501  # a tuple of three
    units = size // near
    across = min(LANES, power_of_two(units // turns))
    return KeyLanes(near, across, -(-units // across))


@frozen
class DecodeTile:
    """Rows of a block, keys of a part and of a step, and how threads share rows of sides."""

    rows: int
    keys: int
    ahead: int
    right: KeyLanes
    values: KeyLanes


def decode_tile(of: Chain, gpu: Gpu) -> DecodeTile | None:
    """The split of a fold, or None if its rows do not fit into registers, or are many."""
    rows = of.size(*of.rows)
    if rows > ROWS:
        return None
    turns = 1 if rows <= FEW_ROWS else 2  # fewer threads for a key: fewer of them add up
    right, values = (
        lanes_for(neighbours(side, axis, of.size(axis)), of.size(axis), turns)
        for side, axis in ((of.right, of.depth), (of.values, of.column))
    )
    held = max(right.held, values.held)
    if held > HELD:
        return None
    chunks = -(-rows // min(TOGETHER, HELD // held))
    keys = of.size(of.key)
    ahead = max(1, TOGETHER // 2 // max(right.turns, values.turns))  # as many are multiplied
    beside = max(right.beside, values.beside)
    while ahead > 1 and beside * ahead > keys:
        ahead //= 2
    step = beside * ahead
    blocks = of.size(*of.lots) * chunks
    wanted = max(1, gpu.processors * BLOCKS // blocks)  # parts that keep all processors busy
    parts = max(min(-(-keys // LONGEST), PARTS), min(wanted, -(-keys // step), PARTS))
    length = -(-keys // (parts * step)) * step
    return DecodeTile(-(-rows // chunks), length, ahead, right, values)


def decode_cost(of: Chain, tile: DecodeTile, gpu: Gpu) -> float:
    """Few rows to many keys, read by blocks that have a part of them each, multiplied meanwhile."""
    chunks = -(-of.size(*of.rows) // tile.rows)
    keys = of.size(*of.lots, of.key)
    wide = of.size(of.depth) + of.size(of.column)
    # Blocks that have other rows read and widen the same keys again.
    busy = max(of.bytes / STREAM, keys * wide * chunks * tile.rows * FEW) * chunks
    return busy / gpu.processors + ends_of(-(-of.size(of.key) // tile.keys))
