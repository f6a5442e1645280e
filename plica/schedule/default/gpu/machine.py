"""Gpus: the few facts about a machine with blocks of threads, as plain data.

>>> Gpu().threads_for(100), Gpu().threads_for(5000)
(128, 256)
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

BLOCKS: Final = 65535
"""Blocks along the second and third axis of a launch, at most."""

LONGEST: Final = (1 << 31) - 1
"""Blocks along the first one, at most."""

DEEPEST: Final = 64
"""Threads along the third axis of a block, at most."""


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
        """Threads of a block for so many pieces of work: whole warps, not more than needed."""
        return min(self.threads, max(self.warp, 1 << (work - 1).bit_length()))
