"""cache_write: a block writes to a copy in a memory scope, which is then copied out.

    before                          after  cache_write(c, 0, "local")
    for i in range(n):              for i in range(n):
        with block("C", v=i):           with block("C", v=i):
            C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                    for ax in range(n):
                                        with block("C_local", v_1=ax):
                                            C[v_1] = C_local[v_1]

The copy comes right after the block, before all that read the buffer.  `consumers` read the copy
instead of the buffer.

Preconditions: `stage-pipeline` (only loops and blocks in the scope), `write-index` (the block
writes so many buffers), `scope` (somebody declared it), `consumers` (they are in the scope and
read the buffer), `sole-writer` (no other block writes it), those of a complete block or a
reduction (so that it reads nothing but what it wrote), `written-before` (its readers come after it,
and there is one place before all of them), `covered` (the block writes all of the box it writes
to).
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.analysis.site import allocate, fresh_label
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Alloc, Block, Seq, Stmt
from plica.schedule.concurrent import unsafe_after
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, steady
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import known_scope, only_loops
from plica.schedule.primitive.cache_read import CopySpot, after_writer
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import (
    InsertionPoint,
    copy_block,
    fresh_vars,
    nest_of,
    reworked,
    spans_over,
    staged_buffer,
    with_buffer,
    with_scope,
)
from plica.schedule.touched_box import is_written, reached


@primitive("cache_write")
@frozen(eq=False)
class CacheWrite(Instruction):
    """A buffer that a block writes, by number; gives the block that copies out."""

    gives = "one"

    block: Handle
    index: int
    scope: str
    consumers: tuple[Handle, ...] = ()

    def check(self, scene: Scene) -> Problem | None:
        return self.wrong(scene) or unsafe_after(self, scene)

    def wrong(self, scene: Scene) -> Problem | None:
        """Why the step is illegal even where all loops are serial."""
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        where = f"the block {site.node.label}"
        if (odd := only_loops(scene, site)) is not None:
            return odd
        writes = stages(scope)[site.node.label].writes
        if not 0 <= self.index < len(writes):
            found = f"number {self.index} of {len(writes)}"
            return Problem("write-index", where, "the number of a buffer it writes", found)
        problem = known_scope(self.scope, where) or steady(site.node)
        if problem is not None:
            return problem
        spot = self.spot(scene)
        return spot if isinstance(spot, Problem) else None

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        buffer, readers = self.meant(scene)
        spot = self.spot(scene)
        assert isinstance(spot, CopySpot)
        assert not isinstance(readers, Problem)
        cache = staged_buffer(kernel, buffer, self.scope)
        label = fresh_label(kernel, str(cache.name))
        variables = fresh_vars(kernel, "v", len(buffer.shape))
        sizes = zip(variables, buffer.shape, strict=True)
        copy = copy_block(label, (buffer, variables), (cache, variables), sizes)
        context = context_of(site.above[: depth_of(site.above, spot.shared)])
        nest = nest_of(kernel, copy, spans_over(spot.box), context)
        names = {site.node.label, *[each.block.label for each in readers]}

        def change(block: Block) -> Stmt:
            return with_buffer(block, buffer, cache) if block.label in names else block

        new = reworked(scope_of(kernel, site), change, spot.place, nest)
        return Edited(allocate(with_scope(kernel, site, new), (cache,)), (label,))

    def meant(self, scene: Scene) -> tuple[Buffer, list[FlowStage] | Problem]:
        """The buffer, and the blocks that are to read the copy."""
        site = scene.block(self.block)
        every = stages(scope_of(scene.kernel, site))
        buffer = every[site.node.label].writes[self.index]
        found: list[FlowStage] = []
        for handle in self.consumers:
            block = scene.block(handle).node
            stage = every.get(block.label)
            if stage is None or buffer not in stage.inputs:
                expected = f"a block of the same scope that reads {buffer.name}"
                return buffer, Problem("consumers", f"the block {block.label}", expected, "another")
            found.append(stage)
        return buffer, found

    def spot(self, scene: Scene) -> CopySpot | Problem:
        """Where the copy goes."""
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        buffer, readers = self.meant(scene)
        if isinstance(readers, Problem):
            return readers
        every = stages(scope)
        writer = every[site.node.label]
        where = f"the block {site.node.label}"
        others = [each for each in every.values() if each is not writer]
        rivals = [str(each.block.label) for each in others if buffer in each.writes]
        if rivals:
            expected = f"the only writer of {buffer.name}"
            return Problem("sole-writer", where, expected, ", ".join(rivals))
        users = [each for each in others if buffer in each.reads]
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
    """The place in the scope after the whole nest of a stage."""
    for stmt, at in stage.path:
        if isinstance(stmt, Seq):
            return InsertionPoint(stmt, at + 1)
        if not isinstance(stmt, Alloc):
            return InsertionPoint(stmt, 1)
    return InsertionPoint(stage.block, 1)


def cache_write(
    block: Handle, index: int, scope: str = "global", consumers: tuple[Handle, ...] = ()
) -> Instruction:
    """Stage what a block writes to a buffer; gives the block that copies it out."""
    return CacheWrite(block, index, scope, tuple(consumers))
