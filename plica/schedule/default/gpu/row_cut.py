"""Cuts of rows among the threads of a block, and the lots of elements that each thread has.

>>> RowCut(across=8, along=128, lanes=1, group=8, registers=3, shared=5, wide=2).near
2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.ir.loop import scalar as sc
from plica.schedule.default.gpu.machine import WIDE, Gpu

LINE: Final = 128
"""Bytes that a warp reads at once, best of all."""

GROUP: Final = 16
"""Elements of four bytes that a thread has under way at once."""

BLOCKS: Final = 8
"""Blocks of staged rows for each processor, where rows are as many."""

MINE: Final = (4, 20)
"""Elements of a staged row that a thread holds, at least and at most."""


@frozen
class RowCut:
    """Threads across rows beside one another and along each, neighbours of a thread in its row;
    slices of a group, and how many groups registers and shared memory keep; rows beside one
    another that a thread has; and rows of a block that follow one another in memory."""

    across: int
    along: int
    lanes: int
    group: int
    registers: int
    shared: int
    wide: int = 1
    high: int = 1
    staged: bool = False
    """Whether a block's rows go through shared memory as they lie, vectors of all of them."""

    @property
    def rows(self) -> int:
        """Threads of a block that have the same place of a row: one has each row, or some."""
        return self.across * self.high

    @property
    def step(self) -> int:
        """Elements of a row in a slice."""
        return self.along * self.lanes

    @property
    def near(self) -> int:
        """Elements of a thread in a slice: neighbours in memory."""
        return self.lanes * self.wide


def pays_staged(without: RowCut, rows: int, length: int, size: int, gpu: Gpu) -> bool:
    """Whether rows that fill no vectors, of elements of some bytes, are there sooner through shared
    memory than by a cut `without` it.

    Where threads have few elements each, what memory takes to answer counts, and each trip through
    shared memory is one more.  Of many, less than whole lines are asked for where a row has few
    threads, or threads have less than a vector each; else single elements keep up.

    >>> few, warp = (RowCut(1, along, 1, 16, 1, 0) for along in (4, 32))
    >>> [pays_staged(few, rows, 73, 2, Gpu()) for rows in (2185, 21853)]
    [False, True]
    >>> pays_staged(warp, 60000, 33, 4, Gpu()), pays_staged(warp, 60000, 1097, 2, Gpu())
    (True, False)
    """
    if rows * length < GROUP * gpu.most:
        return False
    return without.step * size < LINE // 2 or length * size < WIDE * without.along


def staged_cut(rows: int, length: int, size: int, gpu: Gpu) -> RowCut | None:
    """How rows are cut whose elements, of some bytes in all, go through shared memory; None where
    they have no room there.

    >>> cut = staged_cut(21853, 73, 2, Gpu())
    >>> cut.along, cut.group, cut.high
    (4, 18, 16)
    """
    least, most = MINE
    most = max(2 * least, min(most, -(-rows * length // gpu.most)))
    mine = {1 << n: -(-length // (1 << n)) for n in range(gpu.block.bit_length())}
    few = [along for along, own in mine.items() if own <= most]
    fit = [along for along in few if mine[along] >= least] or few[:1]
    if not fit:
        return None
    along = min(fit, key=lambda each: (each * mine[each], each))
    whole_warps = max(1, gpu.warp // along)
    high = min(gpu.threads // along, rows // (BLOCKS * gpu.processors)) // whole_warps * whole_warps
    high = min(max(high, whole_warps), gpu.block // along)
    if 4 * high * length * size > gpu.shared:
        return None  # several blocks of a processor: one reads while another computes
    whole = length // along
    return RowCut(1, along, 1, max(1, whole), min(1, whole), 0, high=high, staged=True)


@frozen(eq=False)
class Lot:
    """Slices that a thread has in some buffers, from a place in them on: the first, how many, and
    neighbours of each; of a `guarded` one some are beyond the row, the `edge` is before and behind
    its vectors."""

    near: Sequence[sc.Buffer]
    first: sc.Scalar
    count: int
    lanes: int
    base: int = 0
    guarded: bool = False
    edge: bool = False


__all__ = ["Lot", "RowCut", "pays_staged", "staged_cut"]
