"""reverse_compute_at: move a consumer into a loop of its producers.

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
- `one-place`: all inputs from the loop are read with the same index, and this index determines the
  variables.
- `whole-reduction`: no part of a reduction.
- `covered`: an iteration of the loop writes its whole box, and the block reads only elements of
  these boxes.
- `index`: a legal position.
- `allocated`: the buffers of the block are allocated around the loop.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.analysis.access import inside
from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import context_of, shown, simple
from plica.analysis.index import Context
from plica.analysis.region import Box
from plica.analysis.site import Above
from plica.core import Name
from plica.ir.loop.scalar import Add, Buffer, Le, Lit, Lt, Scalar, ScalarVar, Sub
from plica.ir.loop.statement import Block, For, Kernel
from plica.ir.type import known
from plica.schedule import move
from plica.schedule.dataflow import FlowStage, common, depth_of, stages, unfinished
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Scene, primitive
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import ValueSpan, nest_of
from plica.schedule.touched_box import is_written, reached, stays_inside


@primitive("reverse_compute_at")
@frozen(eq=False)
class ReverseComputeAt(move.BlockMove):
    """A block into a loop of its producers; gives nothing."""

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
    order = list(every)
    mine, loop = every[site.node.label], target.node
    where = f"the block {site.node.label}"
    inside_loop = [label for label, each in every.items() if move.is_under(each, loop)]
    makers: list[tuple[Buffer, FlowStage]] = []
    for buffer in mine.inputs:
        for each in every.values():
            if buffer not in each.writes:
                continue
            if move.is_under(each, loop):
                makers.append((buffer, each))
            elif order.index(each.block.label) > order.index(inside_loop[0]):
                expected = f"{buffer.name} to be made before the loop {loop.var.name}"
                return Problem("available", where, expected, f"{each.block.label} comes after")
    if not makers:
        expected = f"a producer of its inputs in the loop {loop.var.name}"
        return Problem("producers-under", where, expected, "none")
    for each in every.values():
        if not set(mine.writes).isdisjoint(each.inputs):
            problem = unfinished(mine, common(mine, each))
            if problem is not None:
                return problem
    place = move.place_in(loop, where, index, [each for _, each in makers], [])
    if isinstance(place, Problem):
        return place
    above = (*target.above, (loop, 0))
    spans = _spans(site.node, mine, makers, (*target.loops, loop), above)
    if isinstance(spans, Problem):
        return spans
    for kind, span in zip(mine.block.kinds, spans, strict=True):
        if kind == "reduce" and span is not None:
            found = "a part of one in an iteration"
            return Problem("whole-reduction", where, "the whole of a reduction", found)
    nest = nest_of(kernel, mine.block, spans, context_of(above))
    problem = move.unavailable(every, mine, move.moved(mine, target, nest), above)
    return problem if problem is not None else move.MovePlan(place, nest)


def _spans(
    block: Block,
    mine: FlowStage,
    makers: list[tuple[Buffer, FlowStage]],
    shared: tuple[For, ...],
    above: Above,
) -> list[ValueSpan | None] | Problem:
    """The values of the block's variables for which its inputs are made in an iteration."""
    where = f"the block {block.label}"
    context = context_of(above)
    outer = context_of(above[: depth_of(above, ())])
    found: dict[ScalarVar, ValueSpan | None] | None = None
    for buffer, maker in makers:
        if (problem := unfinished(maker, shared)) is not None:
            return problem
        box = reached([maker], buffer, shared, context, written=True)
        every_read = reached([mine], buffer, (), outer, written=False)
        for part, loops, there in ((box, shared, context), (every_read, (), outer)):
            if not stays_inside(block, buffer) or not is_written(maker, loops, part, there):
                expected = f"{maker.block.label} to write all of what is read of {buffer.name}"
                return Problem("covered", where, expected, "that is not shown")
        values = _values(block, buffer, box, context)
        if values is None or (found is not None and found != values):
            expected = f"one place at which {buffer.name} is read, as other inputs are"
            return Problem("one-place", where, expected, "several, or one that tells no variables")
        found = values
    assert found is not None
    return [found[var] for var in block.vars]


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
        solved = _solved(term, ValueSpan(start, extent))
        if solved is not None and solved[0] in found:
            if found[solved[0]] is not None:
                return None
            found[solved[0]] = solved[1]
        elif not all(shown(each, context) for each in inside_box):
            return None
    return found


def _solved(term: Scalar, span: ValueSpan) -> tuple[ScalarVar, ValueSpan] | None:
    """The variable of an index `v + c`, and its values for which the index is in a span."""
    match term:
        case ScalarVar():
            return term, span
        case Add(ScalarVar() as var, Lit() as offset) | Add(Lit() as offset, ScalarVar() as var):
            return var, ValueSpan(simple(span.start - offset), span.extent)
        case Sub(ScalarVar() as var, Lit() as offset):
            return var, ValueSpan(simple(span.start + offset), span.extent)
        case _:
            return None


def reverse_compute_at(block: Handle, loop: Handle, index: int = move.LAST) -> Instruction:
    """A block into a loop of its producers, on what they make there."""
    return ReverseComputeAt(block, loop, index)
