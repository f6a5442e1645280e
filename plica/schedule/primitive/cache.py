"""Caches: a buffer that a block reads or writes, staged in a memory scope."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.analysis.region import Box
from plica.analysis.site import allocate, fresh_label
from plica.ir.loop import Alloc, Block, Buffer, For, Seq, Stmt
from plica.schedule import scope_edit
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, steady
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import known_scope, only_loops
from plica.schedule.problem import Problem
from plica.schedule.touched_box import is_filled, is_written, reached


@frozen(eq=False)
class CopySpot:
    """The position of a copy: the place, its enclosing loops, and its box."""

    place: scope_edit.InsertionPoint
    shared: tuple[For, ...]
    box: Box


@frozen(eq=False)
class StagedCopy(Instruction):
    """A buffer that a block uses, by number, staged in a scope; gives the block that copies."""

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
        if (odd := only_loops(scene, site)) is not None:
            return odd
        where = f"the block {site.node.label}"
        used = self.used(stages(scope_of(scene.kernel, site))[site.node.label])
        if not 0 <= self.index < len(used):
            found = f"number {self.index} of {len(used)}"
            return Problem(self.numbered[0], where, self.numbered[1], found)
        problem = known_scope(self.scope, where) or self.unstageable(site.node)
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
        cache = scope_edit.staged_buffer(kernel, buffer, self.scope)
        label = fresh_label(kernel, str(cache.name))
        variables = scope_edit.fresh_vars(kernel, "v", len(buffer.shape))
        sizes = zip(variables, buffer.shape, strict=True)
        to, source = (buffer, cache) if self.copies_out else (cache, buffer)
        copy = scope_edit.copy_block(label, (to, variables), (source, variables), sizes)
        context = context_of(site.above[: depth_of(site.above, spot.shared)])
        nest = scope_edit.nest_of(kernel, copy, scope_edit.spans_over(spot.box), context)
        names = {reader.block.label for reader in readers}
        names |= {site.node.label} if self.copies_out else set()

        def change(block: Block) -> Stmt:
            return scope_edit.with_buffer(block, buffer, cache) if block.label in names else block

        new = scope_edit.reworked(scope_of(kernel, site), change, spot.place, nest)
        return Edited(allocate(scope_edit.with_scope(kernel, site, new), (cache,)), (label,))

    def meant(self, scene: Scene) -> tuple[Buffer, list[FlowStage] | Problem]:
        """The buffer, and the blocks that are to read the copy."""
        site = scene.block(self.block)
        every = stages(scope_of(scene.kernel, site))
        buffer = self.used(every[site.node.label])[self.index]
        if not self.consumers and not self.copies_out:
            return buffer, [each for each in every.values() if buffer in each.inputs]
        flow_stages: list[FlowStage] = []
        for handle in self.consumers:
            block = scene.block(handle).node
            stage = every.get(block.label)
            if stage is None or buffer not in (stage.inputs if self.copies_out else stage.reads):
                expected = f"a block of the same scope that reads {buffer.name}"
                return buffer, Problem("consumers", block, expected, "another")
            flow_stages.append(stage)
        return buffer, flow_stages

    copies_out: ClassVar[bool] = False
    """Whether the block writes to the copy, and not the buffer's readers read it."""

    numbered: ClassVar[tuple[str, str]]
    """The precondition on the number of the buffer, and what it expects."""

    def used(self, stage: FlowStage) -> tuple[Buffer, ...]:
        """The buffers that are counted."""
        raise AssertionError(f"{type(self).__name__} stages nothing.")

    def unstageable(self, block: Block) -> Problem | None:
        """What else must hold of the block."""
        return None

    def spot(self, scene: Scene) -> CopySpot | Problem:
        """The position of the copy."""
        raise AssertionError(f"{type(self).__name__} stages nothing.")


@primitive("cache_read")
@frozen(eq=False)
class CacheRead(StagedCopy):
    """Stage a buffer that blocks read in a memory scope.

        before                          after  cache_read(c, 0, "shared")
        for i in range(n):              for ax in range(n):
            with block("C", v=i):           with block("A_shared", v_1=ax):
                C[v] = A[v] * 2                 A_shared[v_1] = A[v_1]
                                        for i in range(n):
                                            with block("C", v=i):
                                                C[v] = A_shared[v] * 2

    The copy comes right after the block that writes the buffer, or at the start of the scope, and
    covers the box that is read. The index counts the buffers in the order in which the block reads
    them, without those it writes. Without `consumers`, every reader in the scope reads the copy.

    Preconditions:

    - `stage-pipeline`: only loops and blocks in the scope.
    - `read-index`: the block reads a buffer of that number.
    - `scope`: a declared memory scope.
    - `consumers`: they are in the scope and read the buffer.
    - `sole-writer`: at most one block writes the buffer, and no consumer does.
    - `written-before`: the writer comes before all consumers, with one common position after it.
    - `covered`: all that is copied has been written.
    """

    numbered = ("read-index", "the number of a buffer it only reads")

    def used(self, stage: FlowStage) -> tuple[Buffer, ...]:
        return stage.inputs

    def spot(self, scene: Scene) -> CopySpot | Problem:
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        buffer, readers = self.meant(scene)
        if isinstance(readers, Problem):
            return readers
        writers = [stage for stage in stages(scope).values() if buffer in stage.writes]
        if len(writers) > 1 or any(flow_stage in readers for flow_stage in writers):
            names = ", ".join(str(flow_stage.block.label) for flow_stage in writers)
            expected = f"at most one writer of {buffer.name}, apart from its readers"
            return Problem("sole-writer", site, expected, names)
        if not writers:
            if not is_filled(scene.kernel, site, buffer):
                expected = f"all of {buffer.name} to be written before it is copied"
                return Problem("covered", site, expected, "that is not shown")
            context = context_of(site.above[: depth_of(site.above, ())])
            box = reached(readers, buffer, (), context, written=False)
            return CopySpot(scope_edit.front_of(scope), (), box)
        (writer,) = writers
        if isinstance(place := after_writer(writer, readers), Problem):
            return place
        shared = common(writer, readers[0])
        context = context_of(site.above[: depth_of(site.above, shared)])
        box = reached(readers, buffer, shared, context, written=False)
        if steady(writer.block) is not None or not is_written(writer, shared, box, context):
            expected = f"{writer.block.label} to write all of {buffer.name} that is copied"
            return Problem("covered", site, expected, "that is not shown")
        return CopySpot(place, shared, box)


def after_writer(
    writer: FlowStage, readers: list[FlowStage]
) -> scope_edit.InsertionPoint | Problem:
    """The one place after a writer and before all its readers."""
    hosts = set()
    for reader in readers:
        for (stmt, here), (other, there) in zip(writer.path, reader.path, strict=False):
            if stmt is not other or here > there:
                found = "one before it"
                return Problem("written-before", writer.block, "its readers after it", found)
            if here < there:
                assert isinstance(stmt, Seq)
                hosts.add((stmt, here + 1))
                break
    if len(hosts) != 1:
        expected = "one place after it and before all its readers"
        return Problem("written-before", writer.block, expected, "readers at several depths")
    return scope_edit.InsertionPoint(*hosts.pop())


def cache_read(
    block: Handle, index: int, scope: str = "global", consumers: tuple[Handle, ...] = ()
) -> Instruction:
    """Stage what blocks read of a buffer; gives the block that copies."""
    return CacheRead(block, index, scope, tuple(consumers))


@primitive("cache_write")
@frozen(eq=False)
class CacheWrite(StagedCopy):
    """Let a block write to a copy in a memory scope, which is then copied out.

        before                          after  cache_write(c, 0, "local")
        for i in range(n):              for i in range(n):
            with block("C", v=i):           with block("C", v=i):
                C[v] = A[v] * 2                 C_local[v] = A[v] * 2
                                        for ax in range(n):
                                            with block("C_local", v_1=ax):
                                                C[v_1] = C_local[v_1]

    The copy comes right after the block, before all readers of the buffer. `consumers` read the
    copy instead of the buffer.

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
        others = [flow_stage for flow_stage in every.values() if flow_stage is not writer]
        if rivals := [str(stage.block.label) for stage in others if buffer in stage.writes]:
            expected = f"the only writer of {buffer.name}"
            return Problem("sole-writer", site, expected, ", ".join(rivals))
        users = [flow_stage for flow_stage in others if buffer in flow_stage.reads]
        place = after_writer(writer, users) if users else after_all(writer)
        if isinstance(place, Problem):
            return place
        shared = common(writer, users[0]) if users else ()
        context = context_of(site.above[: depth_of(site.above, shared)])
        box = reached([writer], buffer, shared, context, written=True)
        if not is_written(writer, shared, box, context):
            expected = f"all of the box of {buffer.name} it writes to"
            return Problem("covered", site, expected, "that is not shown")
        return CopySpot(place, shared, box)


def after_all(stage: FlowStage) -> scope_edit.InsertionPoint:
    """The place right after the whole nest of a stage, where the buffers it uses are allocated."""
    place: scope_edit.InsertionPoint | None = None
    for stmt, at in stage.path:
        if isinstance(stmt, Seq):
            place = scope_edit.InsertionPoint(stmt, at + 1)
        elif isinstance(stmt, Alloc):
            place = None
        else:
            return place or scope_edit.InsertionPoint(stmt, 1)
    return place or scope_edit.InsertionPoint(stage.block, 1)


def cache_write(
    block: Handle, index: int, scope: str = "global", consumers: tuple[Handle, ...] = ()
) -> Instruction:
    """Stages a block's writes to a buffer; returns the block that copies them out."""
    return CacheWrite(block, index, scope, tuple(consumers))
