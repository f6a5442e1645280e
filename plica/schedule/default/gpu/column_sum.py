"""Reductions over other axes than the last on a GPU: threads read vectors of neighbouring columns.

    y[j] = sum over k of x[k, j]   -->   part[p, j] = sum over k of part p of x[k, j]     launch 1
                                         y[j]       = sum over p of part[p, j]            launch 2

A thread has up to 16 bytes of a row, of several rows at once; those of a block that have the same
columns join what they have in shared memory.  Where the blocks that columns give cannot read as
fast as memory is, columns are cut into parts, which a second launch joins.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (8192, 256), f32)
>>> total = stage("y", (256,), lambda j: reduce("sum", (8192,), lambda k: x[k, j]))
>>> made = column_sums(stages((x,), (total,)), Gpu())
>>> [[known(size) for size in each.outs[0].shape] for each in made.stages]
[[256, 256], [256]]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage, Stage
from plica.ir.loop.stages import Names, Stages, stages
from plica.ir.loop.statement import NOTHING, Branch, LoopKind, Stmt, Store
from plica.ir.type.dim import known
from plica.schedule.default.gpu.block_launch import block_launch
from plica.schedule.default.gpu.cost import BYTES, LATENCY, LAUNCH
from plica.schedule.default.gpu.machine import Gpu, power_of_two, vector_lanes
from plica.schedule.default.gpu.one_fold import OneFold, SumWriter, one_fold, placed
from plica.schedule.default.gpu.row_cut import Lot, RowCut
from plica.schedule.default.gpu.row_passes import RowPass, RowPasses, reads_inside
from plica.schedule.default.gpu.split_reduction import even_cut, is_along

SECTOR: Final = 32
"""Bytes of a row that threads of a block read at once, at least."""

SHARE: Final = {32: 0.6, 64: 0.8}
"""How fast memory is where it gives so few neighbours at once."""

AHEAD: Final = 64
"""Bytes that a thread has under way at once, in as many rows as that is, but no more than these."""

GROUP: Final = 16
"""Rows that a thread has under way, at most."""

READ: Final = 20
"""Bytes that a processor reads in a cycle where all do."""

BLOCKS: Final = 8
"""Blocks of threads that a processor has under way."""


def column_sums(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages with one reduction whose results are neighbours where what is read is, as launches of
    vectors; None where they are no such."""
    names = Names(of)
    names.used.add(of.result.name)
    found = one_fold(of, names)
    lanes = () if found is None else _lanes(found)
    if found is None or not lanes:
        return None
    last = found.last
    kept = [each for each in found.read if lanes[-1] in free_vars(each)]
    if not all(reads_inside(each, found.sizes) for each in kept):
        return None  # a border, which is not there
    one = found.passes(lanes, names, *kept)
    cut = cut_of(one, gpu)
    if cut.parts == 1:
        whole = _ColumnWriter(of, one, cut, names, last)
        return stages(of.inputs, (ExternStage((last.out,), whole.launch()),))
    (total,) = one.passes
    shape = (cut.parts, *[known(size) or 0 for size in last.out.shape])
    part = sc.Buffer(names.name("part"), tuple(map(sc.index, shape)), total.out.dtype)
    first = _ColumnWriter(of, one, cut, names, Each(part, last.axes, one.value), in_parts=True)
    p = names.var("p")
    sizes = {**{each: one.sizes[each] for each in last.axes}, p: cut.parts}
    terms = Each(part, (p, *last.axes), sc.Load(part, (p, *last.axes)))
    load = sc.Load(part, tuple([placed(each, sizes) for each in terms.axes]))
    join = RowPass(total.out, total.combiner, load)
    two = RowPasses((join,), terms, one.value, (p,), sizes, (load,))
    second = _ColumnWriter(of, two, cut_of(two, gpu, alone=True), names, last)
    made: list[Stage] = [
        ExternStage((part,), first.launch()),
        ExternStage((last.out,), second.launch()),
    ]
    return stages(of.inputs, made)


def _lanes(of: OneFold) -> tuple[sc.ScalarVar, ...]:
    """The last axes of results, along which neighbours are neighbours in memory, behind all terms;
    none where something is read for several results, which tiles of a product do better."""
    axes = of.wide
    mine = [each for each in of.read if axes and axes[-1] in free_vars(each)]
    if not mine or not all(is_along(each, axes[-1]) for each in mine):
        return ()
    count = len(axes)
    for load in mine:
        if not free_vars(load).issuperset(axes):
            return ()
        deep = max(n for n, e in enumerate(load.indices) if not free_vars(e).isdisjoint(of.row))
        behind = load.indices[deep + 1 :]
        same = 0
        while same < min(len(behind), count) and behind[-1 - same] is axes[-1 - same]:
            same += 1
        count = min(count, same)
    return tuple(axes[len(axes) - count :])


# --- how they are cut -----------------------------------------------------------------------------


@frozen
class ColumnCut:
    """Threads across columns and along each, columns of a thread, rows that it has under way, and
    parts of so many terms."""

    across: int
    along: int
    wide: int
    group: int
    parts: int
    length: int


def cut_of(of: RowPasses, gpu: Gpu, *, alone: bool = False) -> ColumnCut:
    """The cut that should take the fewest cycles: more threads of a block, or parts that one more
    launch joins; where one launch is `alone` there are none."""
    inner = next(of.sizes[axis] for axis in reversed(of.lanes) if of.sizes[axis] != 1)
    sizes = [each.buffer.dtype.bytes for each in of.kept]
    wide = vector_lanes(inner, max(sizes))
    group = min(GROUP, AHEAD // (wide * max(sizes)))
    columns = -(-of.beside // wide)
    whole = of.count * of.beside * of.length * sum(sizes)

    def cycles(cut: ColumnCut) -> float:
        threads = cut.across * cut.along
        blocks = of.count * -(-columns // cut.across) * cut.parts
        rate = min(BYTES, threads * group * wide * sum(sizes) / (2 * LATENCY))
        share = SHARE.get(cut.across * wide * max(sizes), 1.0)
        time = whole / (share * min(blocks * rate, gpu.processors * READ))
        return time + (2 * (LAUNCH + LATENCY) if cut.parts > 1 else 0)

    found: list[ColumnCut] = []
    threads = gpu.threads
    while threads <= gpu.block:
        across = min(gpu.warp, power_of_two(columns))
        while True:
            along = min(threads // across, power_of_two(-(-of.length // group)))
            high = min(threads // along, power_of_two(columns))
            blocks = of.count * -(-columns // high)
            many = min(-(-gpu.processors * BLOCKS // blocks), of.length // (along * group))
            for parts in (1,) if alone or many < 2 else (1, many):
                found.append(ColumnCut(high, along, wide, group, *even_cut(of.length, parts)))
            across //= 2
            if not across or across * wide * max(sizes) < SECTOR:
                break
        threads *= 2
    return min(found, key=cycles)


# --- what is written ------------------------------------------------------------------------------


class _ColumnWriter(SumWriter):
    """A launch of columns, or of parts of them."""

    def __init__(
        self, of: Stages, found: RowPasses, cut: ColumnCut, names: Names, last: Each, *,
        in_parts: bool = False,
    ) -> None:  # fmt: skip
        rows = RowCut(cut.across, cut.along, 1, cut.group, 0, 0, cut.wide)
        super().__init__(of, found, rows, cut.length, names, last, cut.parts)
        self.parts, self.part = cut.parts, names.var("p")
        self.even = cut.length * cut.parts == found.length
        self.in_parts = in_parts

    def launch(self) -> Stmt:
        """Statements by blocks: all columns of a part, then those of the next."""
        blocks, each = self.names.var("g"), self.blocks
        at = (blocks // each, blocks % each) if self.parts > 1 else (sc.index(0), blocks)
        body = substitute(self.summed(), dict(zip((self.part, self.block), at, strict=True)))
        along, across = (self.thread, self.cut.along), (self.lane, self.cut.across)
        return block_launch(body, (blocks, each * self.parts), along, across)

    def _made(self) -> Stmt:
        if not self.in_parts:
            return super()._made()
        (total,) = self.totals.values()

        def one(near: sc.Scalar) -> Stmt:
            at = self._places(near)
            places = [substitute(each, at) for each in self.last.axes]
            return Store(self.last.out, (self.part, *places), sc.Load(total, (near,)))

        return self._each(self.cut.wide, one, "vectorized")

    def _element(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        return self._unit(of, u) + self.part * self.length

    def _in_lot(
        self, of: Lot, body: Callable[[sc.Scalar, sc.Scalar], Stmt], kind: LoopKind
    ) -> Stmt:
        if self.even:
            return super()._in_lot(of, body, kind)
        end = sc.index(self.found.length)

        def slice_(u: sc.Scalar) -> Stmt:
            inner = self._each(of.lanes, partial(body, u), kind)
            inside: sc.Scalar = sc.Lt(self._element(of, u, sc.index(0)), end)
            if of.guarded:
                inside = sc.And(sc.Lt(self._unit(of, u), sc.index(self.length)), inside)
            return Branch(inside, inner, NOTHING)

        return self._each(of.count, slice_)


__all__ = ["column_sums"]
