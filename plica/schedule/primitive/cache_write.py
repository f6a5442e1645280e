"""cache_write: let a block write to a copy in a memory scope, which is then copied out.

    before                          after  cache_write(c, 0, "local")
    for i in range(n):              for i in range(n):
        with block("C", v=i):           with block("C", v=i):
            C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                    for ax in range(n):
                                        with block("C_local", v_1=ax):
                                            C[v_1] = C_local[v_1]

The copy comes right after the block, before all readers of the buffer. `consumers` read the copy
instead of the buffer.

Preconditions:

- `stage-pipeline`: only loops and blocks in the scope.
- `write-index`: the block writes a buffer of that number.
- `scope`: a declared memory scope.
- `consumers`: they are in the scope and read the buffer.
- `sole-writer`: no other block writes it.
- a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`; or a
  reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `written-before`: all readers come after it, with one position before all of them.
- `covered`: the block writes all of the box it writes to.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.ir.loop import Alloc, Block, Buffer, Seq
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, steady
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Scene, primitive
from plica.schedule.primitive.cache_read import CopySpot, StagedCopy, after_writer
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import InsertionPoint
from plica.schedule.touched_box import is_written, reached


@primitive("cache_write")
@frozen(eq=False)
class CacheWrite(StagedCopy):
    """A buffer that a block writes, by number; gives the block that copies out."""

    copies_out = True
    numbered = ("write-index", "the number of a buffer it writes")

    def used(self, stage: FlowStage) -> tuple[Buffer, ...]:
        return stage.writes

    def unstageable(self, block: Block) -> Problem | None:
        return steady(block)

    def spot(self, scene: Scene) -> CopySpot | Problem:
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        buffer, readers = self.meant(scene)
        if isinstance(readers, Problem):
            return readers
        every = stages(scope)
        writer = every[site.node.label]
        where = f"the block {site.node.label}"
        others = [flow_stage for flow_stage in every.values() if flow_stage is not writer]
        if rivals := [str(stage.block.label) for stage in others if buffer in stage.writes]:
            expected = f"the only writer of {buffer.name}"
            return Problem("sole-writer", where, expected, ", ".join(rivals))
        users = [flow_stage for flow_stage in others if buffer in flow_stage.reads]
        place = after_writer(writer, users) if users else after_all(writer)
        if isinstance(place, Problem):
            return place
        shared = common(writer, users[0]) if users else ()
        context = context_of(site.above[: depth_of(site.above, shared)])
        box = reached([writer], buffer, shared, context, written=True)
        if not is_written(writer, shared, box, context):
            expected = f"all of the box of {buffer.name} it writes to"
            return Problem("covered", where, expected, "that is not shown")
        return CopySpot(place, shared, box)


def after_all(stage: FlowStage) -> InsertionPoint:
    """The place right after the whole nest of a stage, where the buffers it uses are allocated."""
    place: InsertionPoint | None = None
    for stmt, at in stage.path:
        if isinstance(stmt, Seq):
            place = InsertionPoint(stmt, at + 1)
        elif isinstance(stmt, Alloc):
            place = None
        else:
            return place or InsertionPoint(stmt, 1)
    return place or InsertionPoint(stage.block, 1)


def cache_write(
    block: Handle, index: int, scope: str = "global", consumers: tuple[Handle, ...] = ()
) -> Instruction:
    """Stages a block's writes to a buffer; returns the block that copies them out."""
    return CacheWrite(block, index, scope, tuple(consumers))
