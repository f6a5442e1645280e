"""cache_inplace: let a block that updates a buffer update a copy, which is copied in and out.

    before                          after  cache_inplace(c, 0, "local")
    …                               for ax in range(n):
    for i in range(n):                  with block("C_local", v_1=ax):
        with block("C", v=i):               C_local[v_1] = C[v_1]
            C[v] = C[v] + A[v]      for i in range(n):
                                        with block("C", v=i):
                                            C_local[v] = C_local[v] + A[v]
                                    for ax_1 in range(n):
                                        with block("C_local_1", v_2=ax_1):
                                            C[v_2] = C_local[v_2]

The index counts the buffers that the block writes.

Preconditions:

- `stage-pipeline`: only loops and blocks in the scope.
- `write-index`: the block writes a buffer of that number.
- `in-place`: it reads that buffer too.
- `scope`: a declared memory scope.
- `alone`: nothing else uses the buffer in the outermost loop around the block.
- `covered`: an earlier block writes all that is copied in.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.index import EMPTY
from plica.analysis.region import Box, clipped, hull
from plica.analysis.site import Site, allocate, fresh_label, map_of
from plica.core import Name
from plica.ir.loop import Block, Buffer, Kernel, Stmt
from plica.schedule import scope_edit
from plica.schedule.dataflow import common, stages
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import known_scope, only_loops
from plica.schedule.primitive.cache import after_all
from plica.schedule.problem import Problem
from plica.schedule.touched_box import is_written, reached


@primitive("cache_inplace")
@frozen(eq=False)
class CacheInplace(Instruction):
    """A buffer that a block reads and writes; gives the blocks that copy in and out."""

    gives = "several"

    block: Handle
    index: int
    scope: str = "global"

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        scope = scope_of(scene.kernel, site)
        where = f"the block {site.node.label}"
        if (odd := only_loops(scene, site)) is not None:
            return odd
        every = list(stages(scope).values())
        mine = next(flow_stage for flow_stage in every if flow_stage.block is site.node)
        if not 0 <= self.index < len(mine.writes):
            found = f"number {self.index} of {len(mine.writes)}"
            return Problem("write-index", where, "the number of a buffer it writes", found)
        buffer = mine.writes[self.index]
        if buffer not in mine.reads:
            expected = f"a block that reads {buffer.name} and writes it"
            return Problem("in-place", where, expected, "it only writes it")
        if (problem := known_scope(self.scope, where)) is not None:
            return problem
        users = [e for e in every if e is not mine and buffer in e.reads + e.writes]
        for user in users:
            if common(mine, user):
                expected = f"no other block that uses {buffer.name} in the same loops"
                return Problem("alone", where, expected, f"{user.block.label}")
        box = _box(site.node, buffer)
        before = [e for e in users if every.index(e) < every.index(mine)]
        if not any(buffer in e.writes and is_written(e, (), box, EMPTY) for e in before):
            expected = f"an earlier block to write all of {buffer.name} that is copied"
            return Problem("covered", where, expected, "that is not shown")
        return unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        kernel, site = scene.kernel, scene.block(self.block)
        label = site.node.label
        buffer = stages(scope_of(kernel, site))[label].writes[self.index]
        cache, box = scope_edit.staged_buffer(kernel, buffer, self.scope), _box(site.node, buffer)
        kernel = allocate(kernel, (cache,))
        kernel, out = _with_copy(kernel, map_of(kernel).blocks[label], (buffer, cache), box, 1)
        kernel, into = _with_copy(kernel, map_of(kernel).blocks[label], (cache, buffer), box, 0)
        here = map_of(kernel).blocks[label]

        def change(block: Block) -> Stmt:
            return scope_edit.with_buffer(block, buffer, cache) if block is here.node else block

        new = scope_edit.reworked(scope_of(kernel, here), change)
        return Edited(scope_edit.with_scope(kernel, here, new), (into, out))


def _box(block: Block, buffer: Buffer) -> Box:
    """All that a block touches of a buffer."""
    stage = next(iter(stages(block).values()))
    read, written = (reached([stage], buffer, (), EMPTY, written=w) for w in (False, True))
    return clipped(hull(read, written))


def _with_copy(
    kernel: Kernel, site: Site[Block], way: tuple[Buffer, Buffer], box: Box, after: int
) -> tuple[Kernel, Name]:
    """The kernel with a copy before or after all loops around a block, and its label."""
    target, source = way
    label = fresh_label(kernel, str(target.name if after == 0 else source.name))
    variables = scope_edit.fresh_vars(kernel, "v", len(target.shape))
    sizes = zip(variables, target.shape, strict=True)
    copy = scope_edit.copy_block(label, (target, variables), (source, variables), sizes)
    nest = scope_edit.nest_of(kernel, copy, scope_edit.spans_over(box), EMPTY)
    scope = scope_of(kernel, site)
    place = after_all(stages(scope)[site.node.label])
    place = place if after else scope_edit.InsertionPoint(place.host, place.at - 1)
    new = scope_edit.reworked(scope, lambda block: block, place, nest)
    return scope_edit.with_scope(kernel, site, new), label


cache_inplace = CacheInplace
