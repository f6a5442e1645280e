"""The template of folds with kept lanes: columns, long rows, and chains of these.

    for i:                                   the axes that all stages share, or parts of the lanes
        for b:                               of a total: its parts are folded where they are added
            run[p]   = fold over h           vectors side by side, unrolled
            long[p]  = long[p] + run[p]
        total[j] = fold over r of long[r, j]
        again[r, j] = total[j]               of a chain: what columns have, along a long row
        out[i, q, p] = f(x[i, q, p], again[p])

Every stage runs inside the loops of the result, with its term loops around those over lanes. The
stages decide which axis is along the lanes: their last.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.column import column_form
>>> x, machine = buffer("x", (4, 1000, 8), f32), Machine(512, 32)
>>> total = stage("y", (4, 8), lambda i, j: reduce("sum", (1000,), lambda k: x[i, k, j]))
>>> fold_schedule(kernel_of(column_form(stages((x,), (total,)), machine)), machine) is None
False
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from attrs import frozen

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Kernel, Select, Store
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.column import VECTORS_IN_FLIGHT, WIDE_ROW_VECTORS
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import (
    BlockFlow,
    block_flow,
    is_reduction,
    made_by,
    reads,
    sizes_of,
    terms_of,
)
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def fold_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of folds across rows, each reading the previous one, or None."""
    flow = block_flow(kernel)
    if flow is None or len(flow.blocks) < 2 or is_reduction(flow.result):
        return None
    before = [block for block in flow.blocks.values() if block is not flow.result]
    weighted = not machine.masks  # else a product of one row with a matrix is for tiles
    if not all(_is_across(block, weighted) for block in before) or not _follow(flow):
        return None
    first, (*rows, width) = before[0], sizes_of(flow.result)
    long = before[1 if _makes_parts(first, flow) else 0]
    lanes, joins = machine.lanes(made_by(first).dtype), long is not before[-1]
    shares = pays(machine, prod(sizes_of(first)), kernel.params)
    streams = not machine.masks and width >= WIDE_ROW_VECTORS * lanes and not joins
    together = 0
    if streams:
        most = machine.cache(1) // 4 // made_by(long).dtype.bytes
        if shares and all(size == 1 for size in rows):
            most = min(most, -(-width // machine.cores))
        together = -(-most // lanes) * lanes
    elif not joins:
        vectors = -(-width // lanes)
        together = -(-vectors // -(-vectors // VECTORS_IN_FLIGHT)) * lanes
    return _FoldNest(
        flow, len(rows), width, _length(long) if joins else width, lanes, shares, streams=streams,
        together=together if together < width else 0, cuts=_is_padded(first),
    ).schedule()  # fmt: skip


def chain_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of columns in stages (`plica.schedule.default.column`), None for other
    kernels."""
    flow = block_flow(kernel)
    if flow is None or is_reduction(flow.result):
        return None
    every = flow.blocks.values()
    totals = [block for block in every if _is_total(block, flow)]
    if not totals or len(totals) + sum(not is_reduction(block) for block in every) < 3:
        return None
    around, width = len(made_by(totals[0]).shape) - 1, _length(totals[0])
    if any(sizes_of(block)[:around] != sizes_of(flow.result)[:around] for block in every):
        return None
    lanes = machine.lanes(made_by(next(filter(is_reduction, every))).dtype)
    shares = pays(machine, COSTLY * sum(prod(sizes_of(block)) for block in every), kernel.params)
    long = width * prod(terms_of(totals[0]))
    return _FoldNest(flow, around, width, long, lanes, shares).schedule()


def _follow(flow: BlockFlow) -> bool:
    """Whether each stage is read by the next alone, in one place."""
    every = [*flow.blocks.values()]
    return all(
        flow.readers.get(made_by(one)) == (after,)
        and sum(read.buffer is made_by(one) for read in reads(after)) == 1
        for one, after in pairwise(every)
    )


def _is_across(of: Block, weighted: bool) -> bool:
    """Whether a block folds terms that are contiguous along its last axis, each read once; rows may
    have factors where they are `weighted`."""
    spatial = [var for var, kind in zip(of.vars, of.kinds, strict=True) if kind == "spatial"]
    if not is_reduction(of) or not spatial or not isinstance(of.body, Store):
        return False
    lane, terms = spatial[-1], {*of.vars} - {*spatial}
    long = {v for v, n in zip(of.vars, of.extents, strict=True) if known(n) != 1}
    moved = [read for read in reads(of) if not free_vars(read).isdisjoint(terms)]
    along = [load for load in moved if lane in free_vars(load)]
    if not terms <= long or (not weighted and len(along) < len(moved)):
        return False
    return bool(along) and is_row(of.body.value, lane) and all(
        long <= free_vars(load) for load in along
    )  # fmt: skip


def _is_total(of: Block, flow: BlockFlow) -> bool:
    """Whether a block folds the parts of a long row, which another fold has made."""
    parts = [block for block in flow.blocks.values() if of in flow.readers.get(made_by(block), ())]
    if not is_reduction(of) or len(parts) != 1 or not is_reduction(parts[0]):
        return False
    alike = len(made_by(parts[0]).shape) == len(made_by(of).shape)
    return alike and _length(parts[0]) == prod(terms_of(of)) * _length(of)


def _makes_parts(of: Block, flow: BlockFlow) -> bool:
    """Whether a fold makes parts that the next adds up one by one."""
    after, rank = flow.readers.get(made_by(of), ()), len(made_by(of).shape)
    return is_reduction(of) and any(
        is_reduction(block) and rank > len(made_by(block).shape) for block in after
    )


def _length(of: Block) -> int:
    """The extent of the last axis of a block's output."""
    return known(made_by(of).shape[-1]) or 0


@frozen(eq=False)
class _FoldNest:
    """The blocks of folds across rows: how many axes are around, the elements of a row, of a long
    row and of a vector, and whether cores share the work."""

    flow: BlockFlow
    around: int
    width: int
    long: int
    lanes: int
    shares: bool
    streams: bool = False  # whether rows are read as they lie, since a vector is a part of a line
    together: int = 0  # how many columns go through all rows at once, 0 where all do
    cuts: bool = True  # whether there may be terms behind the last

    def schedule(self) -> Do:
        result, blocks = self.flow.result, [*self.flow.blocks.values()]

        @do
        def schedule() -> Body:
            _, every = yield from opened(result)
            outer, lane = [*every[: self.around]], every[-1]
            shared = [axis for axis, size in zip(outer, sizes_of(result), strict=False) if size > 1]
            if self.together:
                part, lane = yield st.split(lane, (None, self.together))
                outer.append(part)
            terms: Sequence[Handle] = outer
            for block in reversed(blocks[:-1]):
                stage = yield st.block(str(block.label))
                if place := (terms if _makes_parts(block, self.flow) else outer):
                    yield st.compute_at(stage, place[-1])
                if not is_reduction(block):
                    *_, along = yield st.loops(stage)
                    yield from self.elements(along, _length(block))
                    continue
                if not self.streams:
                    yield st.set_scope(stage, 0, "local")
                terms = yield from self.fold(stage, block)
            yield from self.elements(lane, _length(result))
            if self.shares and (shared or outer):
                yield st.parallel((shared or outer[-1:])[0])

        return schedule()

    def fold(self, stage: Handle, of: Block) -> Body:
        """The loops of a fold: over its terms, which it gives, and inside of these over lanes."""
        size, count, joins = _length(of), len(terms_of(of)), self.long > self.width
        parts = [block for block in self.flow.blocks.values()
                 if of in self.flow.readers.get(made_by(block), ()) or block is of]  # fmt: skip
        if joins and size == self.long and not any(_makes_parts(part, self.flow) for part in parts):
            # Accumulators stay in registers, whose copy can be read at any index.
            copy = yield st.cache_write(stage, 0, "local")
            yield from self.vectors((yield st.loops(copy))[-1:], size)
        every: tuple[Handle, ...] = yield st.loops(stage)
        many = 2 if size < self.width else 1  # vectors of a row may be an axis of their own
        lane, terms = every[-many - count : -count], every[len(every) - count :]
        yield st.reorder(*terms, *lane)
        yield from self.vectors(lane, size)
        yield st.decompose_reduction(stage, terms[0])
        if self.cuts and (size == self.long or not joins):
            for handle in (*terms, *lane[:-1]):
                yield st.annotate(handle, "cut_choices", True)
        return terms

    def elements(self, lane: Handle, size: int) -> Body:
        """The last loop of a stage that folds nothing: long row after long row, or columns."""
        if size == self.long > self.width:  # columns, one after another, again and again
            _, column = yield st.split(lane, (None, self.width))
            yield st.unroll(column)
            return
        if size > self.long:
            rows, lane = yield st.split(lane, (None, self.long))
            if size % self.long:
                yield st.annotate(rows, "cut_choices", True)
        yield from self.vectors((lane,), size)

    def vectors(self, lane: Sequence[Handle], size: int) -> Body:
        """The vectors of a row unrolled; columns that fill half a vector, or one by one. A streamed
        row has its full length."""
        *many, last = lane
        if not many and not self.streams and size >= self.long > self.lanes:
            *many, last = yield st.split(last, (None, self.lanes))
        for handle in many:
            yield st.unroll(handle)
        yield st.unroll(last) if 2 * size < self.lanes else st.vectorize(last)


def _is_padded(of: Block) -> bool:
    """Whether there are terms behind the last."""
    assert isinstance(of.body, Store)
    return any(isinstance(node, Select) for node in post_order(of.body.value))
