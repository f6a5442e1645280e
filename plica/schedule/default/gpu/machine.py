"""Gpus: the few facts about a machine with blocks of threads, as plain data.

>>> Gpu().threads_for(100), Gpu().threads_for(5000)
(128, 256)
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

MAX_BLOCKS_YZ: Final = 65535  # blocks along the second and third axis of a launch
MAX_BLOCKS_X: Final = (1 << 31) - 1  # blocks along the first one
MAX_THREADS_Z: Final = 64  # threads along the third axis of a block
LANES: Final = 32  # threads of a warp
THREADS_AT_ONCE: Final = 2048  # threads that a processor runs at once
WORD_BYTES: Final = 4  # bytes of a register
VECTOR_BYTES: Final = 16  # bytes that one instruction moves
SECTOR_BYTES: Final = 32  # neighbouring bytes that memory gives at once
LINE_BYTES: Final = 128  # bytes that a warp reads at once, best of all
BLOCKS_A_PROCESSOR: Final = 8  # blocks of threads that a processor has under way
MAX_THREAD_BYTES: Final = 16 * 1024
"""Bytes that a thread has to itself, at most: a GPU sets them aside for all threads that it can run
at once, 4 GiB for the 270,336 of 132 processors, before the first of them runs."""


def vector_lanes(length: int, size: int) -> int:
    """Elements of some bytes that one instruction moves, where rows of a length have whole ones.

    >>> vector_lanes(24, 2), vector_lanes(24, 4), vector_lanes(7, 4)
    (8, 4, 1)
    """
    return next((n for n in (8, 4, 2) if n * size <= VECTOR_BYTES and length % n == 0), 1)


def power_of_two(count: int) -> int:
    """The least power of two that is not below a number.

    >>> power_of_two(32), power_of_two(33)
    (32, 64)
    """
    return 1 << max(0, count - 1).bit_length()


@frozen
class Gpu:
    """How many blocks run at once, threads that share an instruction, and bytes blocks share."""

    processors: int = 132
    warp: int = 32
    threads: int = 256
    shared: int = 227 * 1024
    registers: int = 65536
    block: int = 1024
    """Threads of a block, at most."""
    groups: bool = False
    """Whether four warps can multiply together, with tiles that a copy engine fetches."""

    @property
    def most(self) -> int:
        """Threads that run at once: more sums than that need no help from others."""
        return self.processors * 512

    def threads_for(self, work: int) -> int:
        """Threads of a block for a number of work items: whole warps, not more than needed."""
        return min(self.threads, max(self.warp, power_of_two(work)))
