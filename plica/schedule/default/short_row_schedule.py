"""The schedule of short rows side by side (`plica.schedule.default.short_row`): a row in each lane.

    for b:
        for k: m[v]    = max(m[v], x[b * 16 + v, k])      written out, vectors over rows
        for j: e[j, v] = exp(…)
        for k: s[v]    = s[v] + e[k, v]
        for j: y[b * 16 + v, j] = e[j, v] / s[v]

Stages before the result stay in registers; the last rows are separate if they fill no vector.
Elementwise functions without row values continue from row to row, a few rows at a time: the last of
these overlap others.

    for b: for v: y[b * 16 + p // 5, p % 5] = f(…)         p = v * 16 + lane, written out

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.short_row import short_row_form
>>> x, machine = buffer("x", (40, 5), f32), Machine(512, 32)
>>> top = stage("m", (40, 1), lambda i, j: reduce("max", (5,), lambda k: x[i, k]))
>>> away = stage("y", (40, 5), lambda i, j: x[i, j] - top[i, 0])
>>> kernel = kernel_of(short_row_form(stages((x,), (top, away)), machine))
>>> short_row_schedule(kernel, machine) is None
False
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from plica.core import free_vars
from plica.ir.loop.stages import loads
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type import f32
from plica.schedule import primitive as st
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import opened, vectors
from plica.schedule.default.role import (
    BlockFlow,
    block_flow,
    is_reduction,
    made_by,
    only_map,
    sizes_of,
)
from plica.schedule.default.share import pays, touched
from plica.schedule.default.short_row import MAX_ROW_ELEMENTS, rows_end_to_end
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def short_row_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of stages with a row in each lane, or of rows end to end; None for other
    kernels."""
    flow, lanes = block_flow(kernel), machine.lanes(f32)
    if (whole := only_map(kernel)) is not None:
        return _end_to_end(whole, machine)
    if flow is None or is_reduction(flow.result) or len(flow.blocks) == 1:
        return None
    if (axis := _row_axis(flow, lanes)) is None:
        return None
    before = [block for block in flow.blocks.values() if block is not flow.result]
    sizes = sizes_of(flow.result)
    shares = pays(
        machine, COSTLY * sum(map(prod, map(sizes_of, flow.blocks.values()))), kernel.params
    )

    @do
    def schedule() -> Body:
        _, every = yield from opened(flow.result)
        rows, lane = yield st.split(every[axis], (None, lanes))
        stages: list[tuple[Handle, Block]] = []
        for each in reversed(before):
            stages.append(((yield st.block(str(each.label))), each))
            yield st.compute_at(stages[-1][0], rows)
        for stage, each in stages:
            yield st.set_scope(stage, 0, "local")
            yield from _written_out(stage, each, axis)
        inner = every[axis + 1 :]
        if inner:
            yield st.reorder(*inner, lane)
        yield from vectors((*inner, lane))
        if sizes[axis] % lanes:
            yield st.annotate(rows, "cut_choices", True)
        if shares:
            outer = [loop for loop, size in zip(every[:axis], sizes, strict=False) if size > 1]
            yield st.parallel(outer[0] if outer else rows)

    return schedule()


def _end_to_end(of: Block, machine: Machine) -> Do | None:
    """The schedule of functions of elements, whose rows follow one another in lanes."""
    assert isinstance(of.body, Store)
    if (found := rows_end_to_end(of.body, machine)) is None:
        return None
    sizes, lanes = sizes_of(of), machine.lanes(f32)
    shares = pays(machine, COSTLY * prod(sizes), touched(of.body))
    rest = found.count % found.together

    @do
    def schedule() -> Body:
        _, every = yield from opened(of)
        around = [e for e, size in zip(every[: found.axis], sizes, strict=False) if size > 1]
        rows, inner = every[found.axis], every[found.axis + 1 :]
        parts = [(rows, inner)]
        apart = shares and not around
        if apart and rest and found.count >= 2 * found.together:  # no two cores write one row
            rows, end = yield st.loop_partition(rows, (None, found.together + rest))
            (last,) = yield st.child_blocks(end)
            parts = [(rows, inner), (end, (yield st.loops(last))[found.axis + 1 :])]
        for part, row in parts:
            blocks, few = yield st.overlap_split(part, found.together)
            elements = yield st.fuse(few, *row)
            several, lane = yield st.split(elements, (None, lanes))
            yield from vectors((several, lane))
            if apart and part is rows:
                yield st.parallel(blocks)
        if shares and around:
            yield st.parallel(around[0])

    return schedule()


def _row_axis(flow: BlockFlow, lanes: int) -> int | None:
    """The result axis along lanes: all earlier stages have blocks of rows in its place, and the row
    in each lane as their last axis.

    Some stage reads rows that lie one behind another: where all that lanes read is contiguous, as
    in sums of columns, they are no rows."""
    before = {made_by(block) for block in flow.blocks.values()} - {made_by(flow.result)}
    lane_places = [load.indices[-1:] for load in loads(flow.result.body) if load.buffer in before]
    stages = [block for block in flow.blocks.values() if block is not flow.result]
    if not any(map(_reads_rows, stages)):
        return None
    for axis, size in enumerate(sizes := sizes_of(flow.result)):
        around, row = [*sizes[:axis], -(-size // lanes)], flow.result.vars[axis]
        reads = all(place and row in free_vars(place[0]) for place in lane_places)
        if size > lanes > 1 and reads and all(_is_of_rows(each, around, lanes) for each in stages):
            return axis
    return None


def _is_of_rows(stage: Block, around: Sequence[int], lanes: int) -> bool:
    """Whether a stage has blocks of rows, one in each lane, and few elements and terms of each."""
    sizes, spatial, at = sizes_of(stage), stage.kinds.count("spatial"), len(around)
    fits = spatial > at and sizes[:at] == around and sizes[spatial - 1] == lanes
    return fits and prod(sizes[at:]) <= MAX_ROW_ELEMENTS * lanes


def _reads_rows(stage: Block) -> bool:
    """Whether neighbours along a stage's last axis are strided in its operand."""
    spatial = stage.kinds.count("spatial")
    if not spatial or not isinstance(stage.body, Store):
        return False
    return not is_row(stage.body.value, stage.vars[spatial - 1])


def _written_out(stage: Handle, of: Block, axis: int) -> Body:
    """The elements of a stage one after another in code, each in all lanes."""
    every: tuple[Handle, ...] = yield st.loops(stage)
    kinds = of.kinds[axis + 1 :]
    own, spatial = every[len(every) - len(kinds) :], kinds.count("spatial")
    inner, lane, terms = own[: spatial - 1], own[spatial - 1], own[spatial:]
    if terms:
        yield st.reorder(*inner, *terms, lane)
    yield from vectors((*inner, *terms, lane))
    if terms:
        yield st.decompose_reduction(stage, terms[0])
