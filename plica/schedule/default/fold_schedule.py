"""The template of folds whose lanes are kept: columns, long rows, chains of these.

    for i:                                   the axes that all stages share, or parts of the lanes
        for b:                               of a total: its parts are folded where they are added
            run[p]   = fold over h           vectors side by side, unrolled
            long[p]  = long[p] + run[p]
        total[j] = fold over r of long[r, j]
        out[i, j] = …

Every stage runs inside of the loops of the result, its own loops over terms around those over
lanes.  Which axis goes along the lanes is said by the stages: their last.

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
from plica.schedule.default.column import VECTORS_IN_FLIGHT, WIDE_ROW_VECTORS
from plica.schedule.default.elementwise import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by, reads
from plica.schedule.default.share import pays
from plica.schedule.default.step import (
    annotate,
    block,
    cache_write,
    compute_at,
    decompose_reduction,
    loops,
    parallel,
    reorder,
    set_scope,
    split,
    unroll,
    vectorize,
)
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def fold_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of folds across rows, None where stages are none."""
    flow = block_flow(kernel)
    if flow is None or len(flow.blocks) < 2 or is_reduction(flow.result):
        return None
    before = [each for each in flow.blocks.values() if each is not flow.result]
    weighted = not machine.masks  # else a product of one row with a matrix is for tiles
    if not all(_is_across(each, weighted) for each in before) or not _follow(flow):
        return None
    return _Columns(flow, before, machine, kernel).schedule()


def _follow(flow: BlockFlow) -> bool:
    """Whether each stage is read by the next alone, in one place."""
    every = [*flow.blocks.values()]
    return all(
        flow.readers.get(made_by(one)) == (after,)
        and sum(each.buffer is made_by(one) for each in reads(after)) == 1
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
    moved = [each for each in reads(of) if not free_vars(each).isdisjoint(terms)]
    along = [each for each in moved if lane in free_vars(each)]
    if not terms <= long or (not weighted and len(along) < len(moved)):
        return False
    return bool(along) and is_row(of.body.value, lane) and all(
        long <= free_vars(each) for each in along
    )  # fmt: skip


@frozen(eq=False)
class _Columns:
    """What the template knows of the stages."""

    flow: BlockFlow
    before: list[Block]
    machine: Machine
    kernel: Kernel

    @property
    def lanes(self) -> int:
        """The lanes of the vectors that are folded."""
        return self.machine.lanes(made_by(self.before[0]).dtype)

    @property
    def width(self) -> int:
        """How many columns the result has."""
        return known(self.flow.result.extents[-1]) or 0

    @property
    def joins(self) -> bool:
        """Whether rows are parts of longer ones, which are joined for each column."""
        return self.long is not self.before[-1]

    @property
    def long(self) -> Block:
        """The fold of (long) rows, whose parts the first may make."""
        return self.before[1 if self.is_run(self.before[0]) else 0]

    @property
    def streams(self) -> bool:
        """Whether rows are read as they lie, since a vector is a part of a line."""
        wide = WIDE_ROW_VECTORS * self.lanes
        return not self.machine.masks and self.width >= wide and not self.joins

    @property
    def shares(self) -> bool:
        """Whether cores share the work."""
        work = prod(known(size) or 0 for size in self.before[0].extents)
        return pays(self.machine, work, self.kernel.params)

    def block_width(self) -> int:
        """How many columns go through all rows at once, 0 where all do."""
        if self.joins:
            return 0
        if not self.streams:
            vectors = -(-self.width // self.lanes)
            return -(-vectors // -(-vectors // VECTORS_IN_FLIGHT)) * self.lanes
        most = self.machine.cache(1) // 4 // made_by(self.long).dtype.bytes
        rows = [known(size) for size in self.flow.result.extents[:-1]]
        if self.shares and all(size == 1 for size in rows):
            most = min(most, -(-self.width // self.machine.cores))
        return -(-most // self.lanes) * self.lanes

    def schedule(self) -> Do:
        width = self.block_width()

        @do
        def schedule() -> Body:
            out = yield block(str(self.flow.result.label))
            *rows, lane = yield loops(out)
            if 0 < width < self.width:
                part, lane = yield split(lane, (None, width))
                rows.append(part)
            around: tuple[Handle, ...] = ()
            last = rows[-1] if rows else None
            for each in reversed(self.before):
                one = yield block(str(each.label))
                if self.is_run(each):
                    last = around[-1]
                if last is not None:
                    yield compute_at(one, last)
                if not self.streams:
                    yield set_scope(one, 0, "local")
                around = yield from self.folded(one, each)
            yield from self.vectors((lane,), self.width)
            if self.shares and rows:
                yield from self.shared(rows)

        return schedule()

    def is_run(self, of: Block) -> bool:
        """Whether a stage makes parts that the next adds up, term by term."""
        after = self.flow.readers[made_by(of)][0]
        return is_reduction(after) and len(made_by(of).shape) > len(made_by(after).shape)

    def folded(self, one: Handle, of: Block) -> Body:
        """The loops of a fold: over its terms, which it gives, and inside of these over lanes."""
        if self.joins and of is self.long and of is self.before[0]:
            # Accumulators stay in registers, whose copy is read at any place.
            copy = yield cache_write(one, 0, "local")
            every: tuple[Handle, ...] = yield loops(copy)
            yield from self.vectors(every[-1:], known(made_by(of).shape[-1]) or 0)
        every = yield loops(one)
        count = of.kinds.count("reduce")
        many = 2 if self.is_cut(of) else 1
        lane, terms = every[-many - count : -count], every[len(every) - count :]
        yield reorder(*terms, *lane)
        begun = yield decompose_reduction(one, terms[0])
        size = known(made_by(of).shape[-1]) or 0
        first: tuple[Handle, ...] = yield loops(begun)
        yield from self.vectors(first[-many:], size)
        yield from self.vectors(lane, size)
        if of in (self.before[0], self.long) and _is_padded(self.before[0]):
            for each in (*terms, *lane[:-1]):
                yield annotate(each, "cut_choices", True)
        return terms

    def is_cut(self, of: Block) -> bool:
        """Whether vectors of a row are an axis of their own."""
        return of in (self.before[0], self.long) and len(made_by(self.long).shape) > len(
            made_by(self.flow.result).shape
        )

    def vectors(self, lane: Sequence[Handle], size: int) -> Body:
        """Vectors of a given number of places side by side; a row that is streamed is as long as it
        is."""
        *many, last = lane
        if (
            not many
            and not self.streams
            and self.lanes < (self.block_width() if size == self.width else size)
        ):
            *many, last = yield split(last, (None, self.lanes))
        for each in many:
            yield unroll(each)
        yield unroll(last) if 2 * size < self.lanes else vectorize(last)

    def shared(self, rows: Sequence[Handle]) -> Body:
        """Cores share the places of the axes around, or the parts of a row where there is one."""
        sizes = [known(size) or 0 for size in self.flow.result.extents[:-1]]
        first = next((at for at, size in enumerate(sizes) if size > 1), len(rows) - 1)
        yield parallel(rows[first])


def _is_padded(of: Block) -> bool:
    """Whether there are terms behind the last."""
    assert isinstance(of.body, Store)
    return any(isinstance(node, Select) for node in post_order(of.body.value))
