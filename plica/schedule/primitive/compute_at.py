"""compute_at: move a producer into a loop of its consumers, and compute there only what they need.

    before                              after  compute_at(b, j0)
    for i in range(n + 2):              for j0 in range(n // 4):
        with block("B", v=i):               for ax in range(6):
            B[v] = A[v] + 1                     with block("B", v=j0 * 4 + ax):
    for j0 in range(n // 4):                        B[v] = A[v] + 1
        for j1 in range(4):                 for j1 in range(4):
            with block("C", …): …               with block("C", …): …  reads B[v] .. B[v + 2]

A shared-memory buffer must contain the elements that all threads of the block need. While no loop
of the producer is bound to these threads, thread 0 fills it for the others. `index` is the position
in the body of the loop: a number, -1 for the last legal position (just before the first reader), -2
for the first one (just after its own producers).

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

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of
from plica.analysis.region import Box
from plica.core import Name
from plica.ir.loop import Kernel, Scalar, ScalarVar
from plica.ir.type import known
from plica.schedule import move
from plica.schedule.dataflow import common, depth_of, stages, unfinished, users
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Scene, primitive
from plica.schedule.launch import meets
from plica.schedule.precondition import intermediate
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import nest_of
from plica.schedule.touched_box import is_written, reached, spans_of


@primitive("compute_at")
@frozen(eq=False)
class ComputeAt(move.BlockMove):
    """A block into a loop of its readers; gives nothing."""

    def planned(self, kernel: Kernel, label: Name, var: ScalarVar) -> move.MovePlan | Problem:
        return _planned(kernel, label, var, self.index)


@lru_cache(maxsize=256)
def _planned(kernel: Kernel, label: Name, var: ScalarVar, index: int) -> move.MovePlan | Problem:
    scene = Scene(kernel, {})
    site, target = scene.map.blocks[label], scene.map.loops[var]
    scope = scope_of(kernel, site)
    if (problem := move.movable(scope, site, target)) is not None:
        return problem
    every = stages(scope)
    mine, loop = every[site.node.label], target.node
    where = f"the block {site.node.label}"
    for buffer in mine.writes:
        problem = intermediate(scene, buffer) or users(kernel, site, buffer)
        if problem is not None:
            return problem
    readers = [e for e in every.values() if not set(mine.writes).isdisjoint(e.inputs)]
    if not readers:
        return Problem("has-consumers", where, "a block that reads what it writes", "none")
    for reader in readers:
        if not move.is_under(reader, loop):
            expected = f"all its readers in the loop {loop.var.name}"
            return Problem("consumers-under", where, expected, f"not {reader.block.label}")
        if (problem := unfinished(mine, common(mine, reader))) is not None:
            return problem
    makers = [
        each for each in every.values()
        if move.is_under(each, loop) and not set(each.writes).isdisjoint(mine.inputs)
    ]  # fmt: skip
    if isinstance(place := move.place_in(loop, where, index, makers, readers), Problem):
        return place
    above = (*target.above, (loop, 0))
    context = context_of(above)
    shared = (*target.loops, loop)
    boxes: list[Box] = []
    places: list[tuple[Scalar, ...]] = []
    for buffer in mine.writes:
        if not (mine_readers := [reader for reader in readers if buffer in reader.inputs]):
            continue
        # Threads that share the buffer share what any of them needs.
        together = tuple([each for each in shared if meets(each, buffer)])
        box = reached(mine_readers, buffer, shared, context, written=False, over=together)
        for access in inside(mine.block):
            if access.written and access.buffer is buffer:
                boxes.append(box)
                places.append(_place(access.starts, access.extents))
        if site.scope is not None:
            outer = context_of(site.above[: depth_of(site.above, ())])
            every_read = reached(mine_readers, buffer, (), outer, written=False)
            if not is_written(mine, (), every_read, outer):
                expected = f"all of {buffer.name} that is read"
                return Problem("covered", where, expected, "that is not shown")
    spans = [
        span if kind == "spatial" else None
        for span, kind in zip(
            spans_of(mine.block, places, boxes, context), mine.block.kinds, strict=True
        )
    ]
    nest = nest_of(kernel, mine.block, spans, context)
    problem = move.unavailable(every, mine, move.moved(mine, target, nest), above)
    return problem if problem is not None else move.MovePlan(place, nest)


def _place(starts: tuple[Scalar | None, ...], extents: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The indices of a single written element, or None."""
    return tuple(
        [
            start if start is not None and known(extent) == 1 else extent
            for start, extent in zip(starts, extents, strict=True)
        ]
    )


def compute_at(block: Handle, loop: Handle, index: int = move.LAST) -> Instruction:
    """A block into a loop of its readers, as much of it as they need there."""
    return ComputeAt(block, loop, index)
