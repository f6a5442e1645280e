"""write_at: let a block write to a copy, which is copied out inside a loop around it.

    before                          after  write_at(i0, c, 0, "local")
    for i0 in range(n // 4):        for i0 in range(n // 4):
        for i1 in range(4):             for i1 in range(4):
            with block("C", …):             with block("C", …):
                C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                        for ax in range(4):
                                            with block("C_local", v_1=i0 * 4 + ax):
                                                C[v_1] = C_local[v_1]

This is `cache_write` and `reverse_compute_at` in one step, so private memory of threads is never
used outside their loops.

Preconditions:

- `loop-around`: the loop is around the block.
- those of `cache_write`, and those of `reverse_compute_at` for the copy.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, primitive
from plica.schedule.primitive.cache_read import StagedCopy
from plica.schedule.primitive.cache_write import CacheWrite
from plica.schedule.primitive.read_at import CopyAt
from plica.schedule.primitive.reverse_compute_at import ReverseComputeAt


@primitive("write_at")
@frozen(eq=False)
class WriteAt(CopyAt):
    """A loop, a block inside it, and a buffer that it writes; gives the block that copies out."""

    move = ReverseComputeAt

    def copied(self) -> StagedCopy:
        return CacheWrite(self.block, self.index, self.scope)


def write_at(loop: Handle, block: Handle, index: int, scope: str = "global") -> Instruction:
    """A block writes to a copy that is copied out inside a loop; gives the block that does that."""
    return WriteAt(loop, block, index, scope)
