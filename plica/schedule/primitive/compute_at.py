"""Moves: a block into a loop around its readers (`compute_at`) or around its producers
(`reverse_compute_at`).

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, v, w = buffer("x", (3,), f32), buffer("y", (3,), f32), *map(axis, "ivw")
>>> one = block("x", (v,), (3,), "s", (i,), Store(x, (v,), y[v]))
>>> two = block("y", (w,), (3,), "s", (i,), Store(y, (w,), x[w]))
>>> loop = For(i, x.shape[0], "serial", seq(one, two))
>>> first, last = stages(loop).values()
>>> place_in(loop, "", FIRST, [first], []).at, part_of(last, loop)
(1, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of, shown
from plica.analysis.index import Context
from plica.analysis.region import Box
from plica.analysis.site import Above, Site
from plica.core import Name
from plica.ir.loop.scalar import Buffer, Le, Lt, Scalar, ScalarVar
from plica.ir.loop.statement import Block, For, Kernel, Seq, Stmt
from plica.ir.type import known
from plica.schedule.dataflow import (
    FlowStage,
    common,
    depth_of,
    stages,
    steady,
    unfinished,
    unsettled,
    users,
)
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import meets, unsafe_after
from plica.schedule.precondition import bindings_of, intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import (
    InsertionPoint,
    ValueSpan,
    nest_of,
    parts_of,
    reworked,
    with_scope,
)
from plica.schedule.touched_box import is_written, reached, solved, spans_of, stays_inside

LAST = -1
FIRST = -2

Spans: TypeAlias = "list[ValueSpan | None]"
"""The values of each variable of a block at its new place, None for all of them."""


@frozen(eq=False)
class MovePlan:
    """The position of the block, and its new loops."""

    place: InsertionPoint
    nest: Stmt


@frozen(eq=False)
class Journey:
    """A block, the loop that it is to go into, and the stages of the scope of both."""

    kernel: Kernel
    site: Site[Block]
    loop: For
    every: Mapping[Name, FlowStage]
    above: Above  # what will be around the block
    shared: tuple[For, ...]  # the loops of that

    @property
    def mine(self) -> FlowStage:
        return self.every[self.site.node.label]

    @property
    def where(self) -> str:
        return f"the block {self.site.node.label}"

    @property
    def outer(self) -> Context:
        """What holds outside of the scope."""
        return context_of(self.above[: depth_of(self.above, ())])

    def unshown(self, expected: str) -> Problem:
        """Elements of which nothing shows that they are written."""
        return Problem("covered", self.where, expected, "that is not shown")


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
        return _planned(type(self), scene.kernel, label, loop.var, self.index)

    @staticmethod
    def neighbours(of: Journey) -> tuple[list[FlowStage], list[FlowStage]] | Problem:
        """The stages in the loop after which the block is to run, and those before which it is."""
        raise AssertionError("Nothing is moved.")

    @staticmethod
    def spans(of: Journey, after: list[FlowStage], before: list[FlowStage]) -> Spans | Problem:
        """The values that its variables have there."""
        raise AssertionError("Nothing is moved.")


@lru_cache(maxsize=512)
def _planned(
    kind: type[BlockMove], kernel: Kernel, label: Name, var: ScalarVar, index: int
) -> MovePlan | Problem:
    scene = Scene(kernel, {})
    site, target = scene.map.blocks[label], scene.map.loops[var]
    if (problem := _unmovable(scope_of(kernel, site), site, target)) is not None:
        return problem
    above, shared = (*target.above, (target.node, 0)), (*target.loops, target.node)
    of = Journey(kernel, site, target.node, stages(scope_of(kernel, site)), above, shared)
    if isinstance(found := kind.neighbours(of), Problem):
        return found
    after, before = found
    if isinstance(place := place_in(of.loop, of.where, index, after, before), Problem):
        return place
    if isinstance(spans := kind.spans(of, after, before), Problem):
        return spans
    nest = nest_of(kernel, of.mine.block, spans, context_of(of.above))
    problem = _unavailable(of, _moved(of, nest))
    return problem if problem is not None else MovePlan(place, nest)


@primitive("compute_at")
@frozen(eq=False)
class ComputeAt(BlockMove):
    """Move a producer into a loop of its consumers, and compute there only what they need.

        before                              after  compute_at(b, j0)
        for i in range(n + 2):              for j0 in range(n // 4):
            with block("B", v=i):               for ax in range(6):
                B[v] = A[v] + 1                     with block("B", v=j0 * 4 + ax):
        for j0 in range(n // 4):                        B[v] = A[v] + 1
            for j1 in range(4):                 for j1 in range(4):
                with block("C", …): …               with block("C", …): …  reads B[v] .. B[v + 2]

    A shared-memory buffer must contain the elements that all threads of the block need. While no
    loop of the producer is bound to these threads, thread 0 fills it for the others. `index` is the
    position in the body of the loop: a number, -1 for the last legal position (just before the
    first reader), -2 for the first one (just after its own producers).

    Preconditions:

    - `same-scope`: block, loop and all users of the buffer.
    - `loop-elsewhere`: the loop is not around the block.
    - a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`; or a
      reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
    - settled inputs, which have the same values later: `stage-pipeline`, `finished`.
    - `affine`: each instance of the block runs.
    - `sole-writer`, `written-before`, `has-consumers`.
    - `intermediate`: the buffer is not an output.
    - `consumers-under`: all readers are in the loop.
    - `finished`: no reader sees part of a reduction.
    - `index`: a legal position.
    - `covered`: what the block reads at its new position has been written.
    - `allocated`: the buffers it uses are allocated around the loop.
    """

    @staticmethod
    def neighbours(of: Journey) -> tuple[list[FlowStage], list[FlowStage]] | Problem:
        mine, every = of.mine, of.every.values()
        for buffer in mine.writes:
            problem = intermediate(Scene(of.kernel, {}), buffer)
            problem = problem or users(of.kernel, of.site, buffer)
            if problem is not None:
                return problem
        readers = [stage for stage in every if not set(mine.writes).isdisjoint(stage.inputs)]
        if not readers:
            return Problem("has-consumers", of.where, "a block that reads what it writes", "none")
        for reader in readers:
            if not is_under(reader, of.loop):
                expected = f"all its readers in the loop {of.loop.var.name}"
                return Problem("consumers-under", of.where, expected, f"not {reader.block.label}")
            if (problem := unfinished(mine, common(mine, reader))) is not None:
                return problem
        makers = [
            stage for stage in every
            if is_under(stage, of.loop) and not set(stage.writes).isdisjoint(mine.inputs)
        ]  # fmt: skip
        return makers, readers

    @staticmethod
    def spans(of: Journey, after: list[FlowStage], before: list[FlowStage]) -> Spans | Problem:
        mine, context = of.mine, context_of(of.above)
        boxes: list[Box] = []
        places: list[tuple[Scalar, ...]] = []
        for buffer in mine.writes:
            if not (readers := [reader for reader in before if buffer in reader.inputs]):
                continue
            # Threads that share the buffer share what any of them needs.
            together = tuple([loop for loop in of.shared if meets(loop, buffer)])
            box = reached(readers, buffer, of.shared, context, written=False, over=together)
            for access in inside(mine.block):
                if access.written and access.buffer is buffer:
                    boxes.append(box)
                    places.append(_place(access.starts, access.extents))
            if of.site.scope is not None:
                every_read = reached(readers, buffer, (), of.outer, written=False)
                if not is_written(mine, (), every_read, of.outer):
                    return of.unshown(f"all of {buffer.name} that is read")
        spans = spans_of(mine.block, places, boxes, context)
        kinds = mine.block.kinds
        return [s if kind == "spatial" else None for s, kind in zip(spans, kinds, strict=True)]


@primitive("reverse_compute_at")
@frozen(eq=False)
class ReverseComputeAt(BlockMove):
    """Move a consumer into a loop of its producers.

        before                              after  reverse_compute_at(c, i0)
        for i0 in range(n // 4):            for i0 in range(n // 4):
            for i1 in range(4):                 for i1 in range(4):
                with block("B", …): …               with block("B", …): …
        for j in range(n):                      for ax in range(4):
            with block("C", v=j):                   with block("C", v=i0 * 4 + ax):
                C[v] = B[v] * 2                         C[v] = B[v] * 2

    It computes there on what the producers have written. `index` is the position in the body of the
    loop: a number, -1 for the end, -2 for the first legal position (just after its producers).

    Preconditions:

    - `same-scope`: block and loop.
    - `loop-elsewhere`: the loop is not around the block.
    - a complete block: `spatial-only`, `sole-writer`, `no-self-read`, `distinct-writes`; or a
      reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
    - settled inputs, which have the same values later: `stage-pipeline`, `finished`.
    - `affine`: each instance of the block runs.
    - `sole-writer`, `written-before`.
    - `producers-under`: at least one producer is in the loop.
    - `available`: the others come before the loop.
    - `finished`: reductions are complete in an iteration.
    - `one-place`: all inputs from the loop are read with the same index, and this index determines
      the variables.
    - `whole-reduction`: no part of a reduction.
    - `covered`: an iteration of the loop writes its whole box, and the block reads only elements of
      these boxes.
    - `index`: a legal position.
    - `allocated`: the buffers of the block are allocated around the loop.
    """

    @staticmethod
    def neighbours(of: Journey) -> tuple[list[FlowStage], list[FlowStage]] | Problem:
        mine, every = of.mine, list(of.every.values())
        first = next((at for at, stage in enumerate(every) if is_under(stage, of.loop)), 0)
        behind = [stage for stage in every[first:] if not is_under(stage, of.loop)]
        for buffer in mine.inputs:
            for stage in behind:
                if buffer in stage.writes:
                    expected = f"{buffer.name} to be made before the loop {of.loop.var.name}"
                    found = f"{stage.block.label} comes after"
                    return Problem("available", of.where, expected, found)
        if not (makers := [stage for _, stage in _made_under(of)]):
            expected = f"a producer of its inputs in the loop {of.loop.var.name}"
            return Problem("producers-under", of.where, expected, "none")
        for stage in every:
            reads = not set(mine.writes).isdisjoint(stage.inputs)
            if reads and (problem := unfinished(mine, common(mine, stage))) is not None:
                return problem
        return makers, []

    @staticmethod
    def spans(of: Journey, after: list[FlowStage], before: list[FlowStage]) -> Spans | Problem:
        block, context = of.site.node, context_of(of.above)
        found: dict[ScalarVar, ValueSpan | None] | None = None
        for buffer, maker in _made_under(of):
            if (problem := unfinished(maker, of.shared)) is not None:
                return problem
            box = reached([maker], buffer, of.shared, context, written=True)
            every_read = reached([of.mine], buffer, (), of.outer, written=False)
            for part, loops, there in ((box, of.shared, context), (every_read, (), of.outer)):
                if not stays_inside(block, buffer) or not is_written(maker, loops, part, there):
                    label = maker.block.label
                    return of.unshown(f"{label} to write all of what is read of {buffer.name}")
            values = _values(block, buffer, box, context)
            if values is None or (found is not None and found != values):
                expected = f"one place at which {buffer.name} is read, as other inputs are"
                several = "several, or one that tells no variables"
                return Problem("one-place", of.where, expected, several)
            found = values
        assert found is not None
        spans = [found[var] for var in block.vars]
        for kind, span in zip(block.kinds, spans, strict=True):
            if kind == "reduce" and span is not None:
                part_of_one = "a part of one in an iteration"
                return Problem("whole-reduction", of.where, "the whole of a reduction", part_of_one)
        return spans


def _made_under(of: Journey) -> list[tuple[Buffer, FlowStage]]:
    """The inputs of a block that are made in the loop, and who makes them."""
    return [
        (buffer, stage)
        for buffer in of.mine.inputs
        for stage in of.every.values()
        if buffer in stage.writes and is_under(stage, of.loop)
    ]


def _place(starts: tuple[Scalar | None, ...], extents: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The indices of a single written element, or None."""
    return tuple(
        [
            start if start is not None and known(extent) == 1 else extent
            for start, extent in zip(starts, extents, strict=True)
        ]
    )


def _values(
    block: Block, buffer: Buffer, box: Box, context: Context
) -> dict[ScalarVar, ValueSpan | None] | None:
    """The values of a block's variables for which the one place it reads is in a box, exactly."""
    places = {
        access.starts if all(known(size) == 1 for size in access.extents) else None
        for access in inside(block)
        if access.buffer is buffer
    }
    if len(places) != 1:
        return None
    (place,) = places
    if place is None:
        return None
    for var, extent in zip(block.vars, block.extents, strict=True):
        context = context.loop(var, extent)
    found: dict[ScalarVar, ValueSpan | None] = dict.fromkeys(block.vars)
    for term, start, extent in zip(place, box.starts, box.extents, strict=True):
        if term is None:
            return None
        inside_box = Le(start, term), Lt(term, start + extent)
        if all(shown(each, context, quick=True) for each in inside_box):
            continue  # whatever the variables are
        known_span = solved(term, ValueSpan(start, extent), context)
        if known_span is not None and known_span[0] in found:
            if found[known_span[0]] is not None:
                return None
            found[known_span[0]] = known_span[1]
        elif not all(shown(each, context) for each in inside_box):
            return None
    return found


def _unmovable(scope: Stmt, site: Site[Block], target: Site[For]) -> Problem | None:
    """Why a block may not run in other loops of its scope, regarding its own properties."""
    block, loop, where = site.node, target.node, f"the block {site.node.label}"
    if site.scope is not target.scope:
        found = f"the loop {loop.var.name} is in another"
        return Problem("same-scope", where, "a loop in the scope of the block", found)
    if loop in site.loops:
        expected, found = "a loop that is not around the block", f"{loop.var.name} is around it"
        return Problem("loop-elsewhere", where, expected, found)
    if (problem := steady(block) or unsettled(scope, block.label)) is not None:
        return problem
    if not bindings_of(site).surjective:
        expected = "loops in which each instance of the block runs"
        return Problem("affine", where, expected, "that is not shown")
    every = list(stages(scope).values())
    mine = stages(scope)[block.label]
    for other in every:
        for buffer in mine.writes if other is not mine else ():
            if buffer in other.writes:
                expected, found = f"the only writer of {buffer.name}", f"{other.block.label} too"
                return Problem("sole-writer", where, expected, found)
            if buffer in other.reads and every.index(other) < every.index(mine):
                expected = f"readers of {buffer.name} after it"
                found = f"{other.block.label} reads it before"
                return Problem("written-before", where, expected, found)
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


def _moved(of: Journey, nest: Stmt) -> FlowStage:
    """The stage as it will be: its block in new loops inside another one."""
    path: list[tuple[Stmt, int]] = []
    for entry in of.above:
        path = [] if isinstance(entry[0], Block) else [*path, entry]
    while isinstance(nest, For):
        path.append((nest, 0))
        nest = nest.body
    assert isinstance(nest, Block)
    return FlowStage(nest, tuple(path), of.mine.reads, of.mine.writes)


def _unavailable(of: Journey, new: FlowStage) -> Problem | None:
    """Why an input is not shown to be there when a stage runs at its new place."""
    for buffer in of.mine.inputs:
        for writer in of.every.values():
            if writer is of.mine or buffer not in writer.writes:
                continue
            if not (shared := common(writer, new)):
                continue
            context = context_of(of.above[: depth_of(of.above, shared)])
            box = reached([new], buffer, shared, context, written=False, guarded=True)
            if not is_written(writer, shared, box, context):
                expected = f"{buffer.name} to be made in the same iteration as it is read"
                found = f"{writer.block.label} is not shown to do so"
                return Problem("covered", of.where, expected, found)
    return None


compute_at = ComputeAt
reverse_compute_at = ReverseComputeAt
