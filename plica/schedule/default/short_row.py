"""Short rows side by side: stages along rows that fill no vectors have a row in each lane.

    m[i]    = max over k of x[i, k]            for b:  rows i = b * 16 + v, a row in each lane
    e[i, j] = exp(x[i, j] - m[i])       -->        for k: m[v]    = max(m[v], x[i, k])
    s[i]    = sum over k of e[i, k]                for j: e[j, v] = exp(x[i, j] - m[v])
    y[i, j] = e[i, j] / s[i]                       for k: s[v]    = s[v] + e[k, v]
                                                   for j: y[i, j] = e[j, v] / s[v]

Along such a row most lanes of a vector would be idle, and per-row values, such as a logarithm,
would be computed for one row at a time. Rows are reduced in element order. Lanes behind the last
row recompute it, unused. Stages before the result stay in registers; the last rows are separate if
they fill no vector.

Functions of the elements of such rows need no sums of a row, so lanes go on from row to row as
elements lie, as many rows at once as fill whole vectors.

    for b: for vectors p of the rows from b * 16 on: y[p] = f(x[p], r[p // 3], c[p % 3])

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (40, 5), f32)
>>> top = stage("m", (40, 1), lambda i, j: reduce("max", (5,), lambda k: x[i, k]))
>>> away = stage("y", (40, 5), lambda i, j: x[i, j] - top[i, 0])
>>> made = short_row_form(stages((x,), (top, away)), Machine(512, 32))
>>> print(made)
lanes[b < 3, v < 16] = max(x[min(b * 16 + v, 39), k] for k in range(5))
out[i < 40, i_1 < 5] = x[i, i_1] - lanes[i // 16, i % 16]
>>> short_row_schedule(kernel_of(made), Machine(512, 32)) is None
False
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Final, TypeVar

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import row_of
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type import f32, known
from plica.schedule import primitive as st
from plica.schedule.default.elementwise import COSTLY, UNEVEN
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
from plica.schedule.default.row import rows_of
from plica.schedule.default.share import pays, touched
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

S = TypeVar("S")

MIN_ROW_ELEMENTS: Final = 4
"""For shorter rows, LLVM vectorises plain loops: there are instructions that deinterleave two or
three vectors."""

MAX_ROW_ELEMENTS: Final = 15
"""The maximum length of a short row: as many vectors stay in registers, and longer ones fill four
of the shortest vectors."""

VECTORS_SIDE_BY_SIDE: Final = 4
"""Vectors of functions that are computed side by side, so that none waits for another's steps."""


def short_row_form(of: Stages, machine: Machine) -> Stages | None:
    """Stages along short rows in the form for their loops, or None."""
    rows = rows_of(of)
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if rows is None or of.dims or len(of.outputs) > 1:
        return None
    if not all(_is_short(stage, rows) for stage in every):
        return None
    lanes, count = machine.lanes(f32), known(every[0].out.shape[rows - 1]) or 0
    if (
        lanes < MIN_ROW_ELEMENTS
        or count < lanes
        or max(_length(e, rows) for e in every) < MIN_ROW_ELEMENTS
    ):
        return None
    return _side_by_side(of, rows, lanes)


def _is_short(of: Each, rows: int) -> bool:
    """Whether a stage has few elements in a row, each made of numbers or of few terms."""
    if of.out.dtype is not f32 or not all(known(size) for size in of.out.shape):
        return False
    if _length(of, rows) > MAX_ROW_ELEMENTS:
        return False
    if not isinstance(of.value, sc.Reduce):
        return not reductions(of.value)
    fold = of.value
    if fold.combiner not in MEANING or reductions(fold.body) or sc.dtype_of(fold.body) is not f32:
        return False
    return 0 < prod([known(size) or 0 for size in fold.extents]) <= MAX_ROW_ELEMENTS


def _length(of: Each, rows: int) -> int:
    """How many elements of a stage are in a row."""
    return prod([known(size) or 0 for size in of.out.shape[rows:]])


@frozen
class RowsEndToEnd:
    """Short rows that lanes go on through: the number of their axis, and how many of them fill
    whole vectors, several side by side."""

    axis: int
    count: int
    together: int


def rows_end_to_end(of: Store, machine: Machine) -> RowsEndToEnd | None:
    """How a store of elementwise functions continues from row to row, or None if vectors along rows
    are as good."""
    if of.buffer.dtype is not f32 or not _has_function(of.value):
        return None
    lanes = machine.lanes(of.buffer.dtype)
    sizes = [known(size) or 0 for size in of.buffer.shape]
    rows = next((at for at in range(len(sizes) - 1, 0, -1) if sizes[at - 1] >= lanes), 0)
    length = prod(sizes[rows:])
    if not rows or lanes < 2 or not 1 < length <= MAX_ROW_ELEMENTS:
        return None
    count, together = sizes[rows - 1], lanes // gcd(lanes, length)
    while together * length < VECTORS_SIDE_BY_SIDE * lanes and 2 * together <= count:
        together *= 2
    whole, rest = divmod(length, lanes)
    along = count * (whole + (min(rest, 1) if machine.masks else rest.bit_count()))
    if length < MIN_ROW_ELEMENTS:
        along = count * length  # nobody makes vectors of these
    vectors = -(-count // together) * together * length // lanes
    # Clearly fewer vectors than along rows, or single ones, which wait.
    alone = length == lanes and count >= 2 * VECTORS_SIDE_BY_SIDE * together
    return RowsEndToEnd(rows - 1, count, together) if alone or 9 * vectors < 8 * along else None


def _has_function(of: sc.Scalar) -> bool:
    """Whether elements have a function in them, and are read where axes say."""
    nodes = post_order(of)
    if any(isinstance(node, UNEVEN) for node in nodes):
        return False
    rows = [row_of(node) for node in nodes if isinstance(node, sc.Scalar)]
    return any(row is not None and row.cost == "function" for row in rows)


def _side_by_side(of: Stages, rows: int, lanes: int) -> Stages:
    """The stages with a row in each lane; lanes behind the last row compute that row again."""
    names = Names(of, anew=of.made)
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    count = known(every[0].out.shape[rows - 1]) or 0
    block, lane = names.var("b"), names.var("v")
    kept: dict[sc.Buffer, sc.Buffer] = {}

    def filled(value: sc.Scalar, block: sc.Scalar, lane: sc.Scalar) -> sc.Scalar:
        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load) or node.buffer not in kept:
                return node
            inner = _long(node.indices, node.buffer.shape, rows)
            return sc.Load(kept[node.buffer], (*node.indices[: rows - 1], block, *inner, lane))

        return map_bottom_up(new, value)

    made: list[Each] = []
    for stage in every:
        row, inner = stage.axes[rows - 1], _long(stage.axes, stage.out.shape, rows)
        if stage.out is of.result:
            value = filled(stage.value, row // lanes, row % lanes)
            out = sc.Buffer(names.name("out"), stage.out.shape, stage.out.dtype)
            made.append(Each(out, stage.axes, value))
            continue
        units = {axis: sc.index(0) for axis in stage.axes[rows:] if axis not in inner}
        at = block * lanes + lane
        at = sc.Min(at, sc.index(count - 1)) if count % lanes else at
        value = substitute(filled(stage.value, block, lane), {**units, row: at})
        sizes = stage.out.shape
        shape = (*sizes[: rows - 1], sc.index(-(-count // lanes)),
                 *_long(sizes, sizes, rows), sc.index(lanes))  # fmt: skip
        kept[stage.out] = sc.Buffer(names.name("lanes"), shape, stage.out.dtype)
        made.append(Each(kept[stage.out], (*stage.axes[: rows - 1], block, *inner, lane), value))
    return stages(of.inputs, made)


def _long(of: Sequence[S], sizes: Sequence[sc.Scalar], rows: int) -> tuple[S, ...]:
    """What belongs to axes within a row, but for those of one element."""
    both = zip(of[rows:], sizes[rows:], strict=True)
    return tuple([each for each, size in both if known(size) != 1])


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
