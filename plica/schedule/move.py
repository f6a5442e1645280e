"""Moves: preconditions and position of a block in another loop.

Shared by `compute_at`, which brings a producer to its readers, and `reverse_compute_at`, which
brings a consumer to its producers.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block, seq
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, v, w = buffer("x", (3,), f32), buffer("y", (3,), f32), *map(axis, "ivw")
>>> one = block("x", (v,), (3,), "s", (i,), Store(x, (v,), y[v]))
>>> two = block("y", (w,), (3,), "s", (i,), Store(y, (w,), x[w]))
>>> loop = For(i, index(3), "serial", seq(one, two))
>>> first, last = stages(loop).values()
>>> place_in(loop, "", FIRST, [first], []).at, part_of(last, loop)
(1, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.analysis.site import Above, Site
from plica.core import Name
from plica.ir.loop import Block, For, Kernel, ScalarVar, Seq, Stmt
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, steady, unsettled
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import bindings_of
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import InsertionPoint, parts_of, reworked, with_scope
from plica.schedule.touched_box import is_written, reached

LAST = -1
FIRST = -2


@frozen(eq=False)
class MovePlan:
    """The position of the block, and its new loops."""

    place: InsertionPoint
    nest: Stmt


@frozen(eq=False)
class BlockMove(Instruction):
    """A block into a loop around others; gives nothing."""

    block: Handle
    loop: Handle
    index: int = LAST

    def check(self, scene: Scene) -> Problem | None:
        plan = self.plan(scene)
        return plan if isinstance(plan, Problem) else unsafe_after(self, scene)

    def edit(self, scene: Scene) -> Edited:
        plan = self.plan(scene)
        assert isinstance(plan, MovePlan)
        site = scene.block(self.block)

        def change(block: Block) -> Stmt | None:
            return None if block is site.node else block

        new = reworked(scope_of(scene.kernel, site), change, plan.place, plan.nest)
        return Edited(with_scope(scene.kernel, site, new))

    def plan(self, scene: Scene) -> MovePlan | Problem:
        """The new place and loops of the block."""
        label, loop = scene.block(self.block).node.label, scene.loop(self.loop).node
        return self.planned(scene.kernel, label, loop.var)

    def planned(self, kernel: Kernel, label: Name, var: ScalarVar) -> MovePlan | Problem:
        """The same for a block and a loop given by name."""
        raise AssertionError(f"{type(self).__name__} moves nothing.")


def movable(scope: Stmt, site: Site[Block], target: Site[For]) -> Problem | None:
    """A block that may run in other loops of its scope, regarding its own properties."""
    block, where = site.node, f"the block {site.node.label}"
    if site.scope is not target.scope:
        found = f"the loop {target.node.var.name} is in another"
        return Problem("same-scope", where, "a loop in the scope of the block", found)
    if target.node in site.loops:
        found = f"{target.node.var.name} is around it"
        return Problem("loop-elsewhere", where, "a loop that is not around the block", found)
    problem = steady(block) or unsettled(scope, block.label)
    if problem is not None:
        return problem
    if not bindings_of(site).surjective:
        expected = "loops in which each instance of the block runs"
        return Problem("affine", where, expected, "that is not shown")
    return sole_writer(stages(scope), block.label)


def sole_writer(every: Mapping[Name, FlowStage], label: Name) -> Problem | None:
    """A stage whose outputs no other one writes, and none before it reads."""
    mine = every[label]
    where, before = f"the block {label}", True
    for other in every.values():
        if other is mine:
            before = False
            continue
        for buffer in mine.writes:
            if buffer in other.writes:
                expected, found = f"the only writer of {buffer.name}", f"{other.block.label} too"
                return Problem("sole-writer", where, expected, found)
            if before and buffer in other.reads:
                found = f"{other.block.label} reads it before"
                return Problem("written-before", where, f"readers of {buffer.name} after it", found)
    return None


def is_under(stage: FlowStage, loop: For) -> bool:
    """Whether a stage runs inside a loop."""
    return any(stmt is loop for stmt, _ in stage.path)


def part_of(stage: FlowStage, loop: For) -> int:
    """The index of the part of a loop's body that contains a stage."""
    depth = next(at for at, (stmt, _) in enumerate(stage.path) if stmt is loop)
    if not isinstance(loop.body, Seq):
        return 0
    return stage.path[depth + 1][1]


def place_in(
    loop: For, where: str, index: int, after: Iterable[FlowStage], before: Iterable[FlowStage]
) -> InsertionPoint | Problem:
    """The place in a loop's body after some stages and before others: by number, LAST or FIRST."""
    parts = parts_of(loop.body)
    first = max([part_of(flow_stage, loop) + 1 for flow_stage in after], default=0)
    last = min([part_of(flow_stage, loop) for flow_stage in before], default=len(parts))
    at = {LAST: last, FIRST: first}.get(index, index)
    if not first <= at <= last:
        expected = f"a place in the loop {loop.var.name} from {first} to {last}"
        return Problem("index", where, expected, f"{at}")
    return InsertionPoint(loop.body, at)


def moved(stage: FlowStage, target: Site[For], nest: Stmt) -> FlowStage:
    """The stage as it will be: its block in new loops inside another one."""
    path: list[tuple[Stmt, int]] = []
    for entry in (*target.above, (target.node, 0)):
        path = [] if isinstance(entry[0], Block) else [*path, entry]
    while isinstance(nest, For):
        path.append((nest, 0))
        nest = nest.body
    assert isinstance(nest, Block)
    return FlowStage(nest, tuple(path), stage.reads, stage.writes)


def unavailable(
    every: Mapping[Name, FlowStage], old: FlowStage, new: FlowStage, above: Above
) -> Problem | None:
    """Why an input is not shown to be there when a stage runs at its new place."""
    where = f"the block {old.block.label}"
    for buffer in old.inputs:
        for writer in every.values():
            if writer is old or buffer not in writer.writes:
                continue
            if not (shared := common(writer, new)):
                continue
            context = context_of(above[: depth_of(above, shared)])
            box = reached([new], buffer, shared, context, written=False, guarded=True)
            if not is_written(writer, shared, box, context):
                expected = f"{buffer.name} to be made in the same iteration as it is read"
                found = f"{writer.block.label} is not shown to do so"
                return Problem("covered", where, expected, found)
    return None
