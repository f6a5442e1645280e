"""Reductions of short rows that fill no vectors, those of a block as vectors of all of them.

y[i] = sum over k of x[i, k]   -->   rows of a block, as they lie, into shared memory
                                     own = joined over elements of a row;  y[i] = across threads
"""

from __future__ import annotations

from math import prod

from plica.core.binding import free_vars
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, stages
from plica.schedule.default.gpu.block_launch import block_launch
from plica.schedule.default.gpu.fold_plan import count_of, row_plan
from plica.schedule.default.gpu.machine import WIDE, Gpu, vector_lanes
from plica.schedule.default.gpu.one_fold import SumWriter, one_fold
from plica.schedule.default.gpu.row import SHORTEST
from plica.schedule.default.gpu.row_cut import RowCut, pays_staged, staged_cut
from plica.schedule.default.gpu.row_passes import reads_inside
from plica.schedule.default.gpu.split_reduction import is_along


def staged_sums(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages with one reduction of rows that fill no vectors and follow one another, as a launch;
    None where they are no such, or are read as fast without shared memory."""
    names = Names(of)
    names.used.add(of.result.name)
    found = one_fold(of, names)
    if found is None or not found.read:
        return None
    if prod([found.sizes[each] for each in found.row]) < SHORTEST:
        return None  # a thread's own
    every = {*found.wide, *found.row}
    plain = all(isinstance(i, sc.Lit) or i in every for e in found.read for i in e.indices)
    if not plain or not all(reads_inside(each, found.sizes) for each in found.read):
        return None  # windows, or a border, which is not there
    if not all(is_along(e, found.row[-1]) and free_vars(e) >= every for e in found.read):
        return None
    one = found.passes((), names, *found.read)
    size = max(each.buffer.dtype.bytes for each in one.kept)
    most, length = WIDE // size, one.length
    lanes = vector_lanes(one.sizes[one.row[-1]], size)
    if lanes == most or not one.is_dense or length > gpu.warp * most:
        return None
    along = count_of(row_plan(one.count, length, lanes, size, gpu), "term", "block")
    apart = RowCut(1, along, lanes, 1, 0, 0)
    if not pays_staged(apart, one.count, length, size, gpu):
        return None
    cut = staged_cut(one.count, length, sum(each.buffer.dtype.bytes for each in one.kept), gpu)
    if cut is None:
        return None
    writer = SumWriter(of, one, cut, length, names, found.last)
    blocks, threads = (writer.block, writer.blocks), (writer.thread, cut.along)
    whole = block_launch(writer.summed(), blocks, threads, (writer.lane, cut.high), beside=False)
    inputs = [writer.flat.get(each, each) for each in of.inputs]
    return stages(inputs, (ExternStage((found.last.out,), whole),))


__all__ = ["staged_sums"]
