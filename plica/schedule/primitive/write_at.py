"""write_at: a block writes to a copy, which is copied out inside a loop around it.

    before                          after  write_at(i0, c, 0, "local")
    for i0 in range(n // 4):        for i0 in range(n // 4):
        for i1 in range(4):             for i1 in range(4):
            with block("C", …):             with block("C", …):
                C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                        for ax in range(4):
                                            with block("C_local", v_1=i0 * 4 + ax):
                                                C[v_1] = C_local[v_1]

It is `cache_write` and `reverse_compute_at` in one step, so that memory which threads have to
themselves is never used outside their loops.

Preconditions: `loop-around` (the loop is around the block), those of `cache_write`, and those of
`reverse_compute_at` for the copy.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.concurrent import unsafe_after
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.primitive.cache_write import CacheWrite
from plica.schedule.primitive.read_at import COPY, not_around
from plica.schedule.primitive.reverse_compute_at import ReverseComputeAt
from plica.schedule.problem import Problem


@primitive("write_at")
@frozen(eq=False)
class WriteAt(Instruction):
    """A loop, a block inside it, and a buffer that it writes; gives the block that copies out."""

    gives = "one"

    loop: Handle
    block: Handle
    index: int
    scope: str

    def check(self, scene: Scene) -> Problem | None:
        problem = not_around(scene, self.loop, self.block) or self._copied().wrong(scene)
        if problem is not None:
            return problem
        plan = ReverseComputeAt(COPY, self.loop).plan(self._halfway(scene))
        return plan if isinstance(plan, Problem) else unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        half = self._halfway(scene)
        done = ReverseComputeAt(COPY, self.loop).edit(half)
        return Edited(done.kernel, (half.outputs[COPY],))

    def _copied(self) -> CacheWrite:
        return CacheWrite(self.block, self.index, self.scope)

    def _halfway(self, scene: Scene) -> Scene:
        first = self._copied().edit(scene)
        return Scene(first.kernel, {**scene.outputs, COPY: first.outputs[0]})


def write_at(loop: Handle, block: Handle, index: int, scope: str = "global") -> Instruction:
    """A block writes to a copy that is copied out inside a loop; gives the block that does that."""
    return WriteAt(loop, block, index, scope)
