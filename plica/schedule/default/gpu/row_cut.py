"""Cuts of rows among the threads of a block, and the lots of elements that each thread has.

>>> RowCut(across=8, along=128, lanes=1, group=8, registers=3, shared=5, wide=2).near
2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.ir.loop import scalar as sc

GROUP: Final = 16  # elements of four bytes that a thread has under way at once


@frozen
class RowCut:
    """Threads across adjacent rows and along each, contiguous elements of a thread in its row;
    slices of a group, and how many groups registers and shared memory keep; adjacent rows of a
    thread; and consecutive rows of a block."""

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
