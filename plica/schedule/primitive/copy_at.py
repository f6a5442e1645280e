"""Copies inside a loop: `cache_read` and `compute_at`, or their mirrors, in one step."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from attrs import frozen

from plica.core import Name
from plica.ir.loop.statement import Kernel
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.primitive.cache import CacheRead, CacheWrite, StagedCopy
from plica.schedule.primitive.compute_at import BlockMove, ComputeAt, ReverseComputeAt
from plica.schedule.problem import Problem

COPY = Handle(-1, 0, "block")
"""The placeholder handle of the copy between the two halves of the step."""


@frozen(eq=False)
class CopyAt(Instruction):
    """A loop, a block inside it, and a buffer that it uses; gives the block that copies."""

    gives = "one"

    loop: Handle
    block: Handle
    index: int
    scope: str = "global"

    def check(self, scene: Scene) -> Problem | None:
        problem = not_around(scene, self.loop, self.block) or self.copied().wrong(scene)
        if problem is not None:
            return problem
        plan = self.move(COPY, self.loop).plan(self._halfway(scene))
        return plan if isinstance(plan, Problem) else unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        half = self._halfway(scene)
        done = self.move(COPY, self.loop).edit(half)
        return Edited(done.kernel, (half.outputs[COPY],))

    def _halfway(self, scene: Scene) -> Scene:
        first = self.staged(scene)
        return Scene(first.kernel, {**scene.outputs, COPY: first.outputs[0]})

    move: ClassVar[type[BlockMove]]  # the step that brings the copy into the loop

    def copied(self) -> StagedCopy:
        """The step that makes the copy."""
        raise AssertionError(f"{type(self).__name__} copies nothing.")

    def staged(self, scene: Scene) -> Edited:
        """The copy, before it is brought into the loop."""
        return self.copied().edit(scene)


@primitive("read_at")
@frozen(eq=False)
class ReadAt(CopyAt):
    """Stage a buffer that a block reads, inside a loop around it.

        before                          after  read_at(i0, c, 0, "shared")
        for i0 in range(n // 4):        for i0 in range(n // 4):
            for i1 in range(4):             for ax in range(4):
                with block("C", …):             with block("A_shared", v_1=i0 * 4 + ax):
                    C[v] = A[v] * 2                 A_shared[v_1] = A[v_1]
                                            for i1 in range(4):
                                                with block("C", …):
                                                    C[v] = A_shared[v] * 2

    This is `cache_read` for one block and `compute_at` in one step, so private memory of threads is
    never used outside their loops.

    Preconditions:

    - `loop-around`: the loop is around the block.
    - those of `cache_read`, and those of `compute_at` for the copy.
    """

    move = ComputeAt

    def copied(self) -> StagedCopy:
        return CacheRead(self.block, self.index, self.scope, (self.block,))

    def staged(self, scene: Scene) -> Edited:
        return _staged(scene.kernel, scene.block(self.block).node.label, self.index, self.scope)


@lru_cache(maxsize=16)
def _staged(kernel: Kernel, label: Name, index: int, scope: str) -> Edited:
    """A copy of a block's input: checked first, then inserted."""
    return CacheRead(COPY, index, scope, (COPY,)).edit(Scene(kernel, {COPY: label}))


def not_around(scene: Scene, loop: Handle, block: Handle) -> Problem | None:
    """A loop that is not around a block."""
    found, site = scene.loop(loop).node, scene.block(block)
    if found in site.loops:
        return None
    return Problem("loop-around", found, f"a loop around {site.node.label}", "one that is not")


@primitive("write_at")
@frozen(eq=False)
class WriteAt(CopyAt):
    """Let a block write to a copy, which is copied out inside a loop around it.

        before                          after  write_at(i0, c, 0, "local")
        for i0 in range(n // 4):        for i0 in range(n // 4):
            for i1 in range(4):             for i1 in range(4):
                with block("C", …):             with block("C", …):
                    C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                            for ax in range(4):
                                                with block("C_local", v_1=i0 * 4 + ax):
                                                    C[v_1] = C_local[v_1]

    This is `cache_write` and `reverse_compute_at` in one step, so private memory of threads is
    never used outside their loops.

    Preconditions:

    - `loop-around`: the loop is around the block.
    - those of `cache_write`, and those of `reverse_compute_at` for the copy.
    """

    move = ReverseComputeAt

    def copied(self) -> StagedCopy:
        return CacheWrite(self.block, self.index, self.scope)


read_at = ReadAt
write_at = WriteAt
