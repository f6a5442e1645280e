"""Reductions over the last axes on a GPU, of rows of any length: vectors, and shuffles in a warp.

    y[i] = sum over k of x[i, k]   -->   for blocks, for rows of a block, for threads of a row:
                                             own = joined over vectors of the row
                                             y[i] = joined across the threads

Several rows share a block where they are many or short.  A row of an odd length begins at no
multiple of a vector: what is before and behind its vectors is read an element at a time.

>>> cut_of(8191, 8192, 8, 2, Gpu())
RowCut(across=1, along=128, lanes=8, group=4, registers=0, shared=0, wide=1, high=2, staged=False)
>>> cut_of(100000, 36, 4, 4, Gpu())
RowCut(across=1, along=8, lanes=4, group=4, registers=0, shared=0, wide=1, high=32, staged=False)
>>> cut_of(140, 5001, 1, 4, Gpu())
RowCut(across=1, along=256, lanes=1, group=4, registers=0, shared=0, wide=1, high=1, staged=False)
"""

from __future__ import annotations

from math import prod
from typing import Final

from plica.core.binding import free_vars
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, stages
from plica.schedule.default.gpu.block_launch import block_launch
from plica.schedule.default.gpu.machine import WIDE, Gpu, power_of_two, vector_lanes
from plica.schedule.default.gpu.one_fold import OneFold, SumWriter, one_fold
from plica.schedule.default.gpu.row import SHORTEST
from plica.schedule.default.gpu.row_cut import RowCut, pays_staged, staged_cut
from plica.schedule.default.gpu.row_passes import RowPasses, reads_inside
from plica.schedule.default.gpu.split_reduction import is_along

LINE: Final = 128
"""Bytes of a row that its threads read at once, at least."""

GROUP: Final = 4
"""Vectors that a thread has under way at once."""


def staged_sums(of: Stages, gpu: Gpu) -> Stages | None:
    """The same of rows that fill no vectors and follow one another, those of a block as vectors of
    all of them through shared memory; None where rows are read as fast without that."""
    return row_sums(of, gpu, staged=True)


def row_sums(of: Stages, gpu: Gpu, *, staged: bool = False) -> Stages | None:
    """Stages with one reduction, whose terms are neighbours, as a launch; None where they are no
    such, or read something for several results."""
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
    most = WIDE // size
    lanes = vector_lanes(one.sizes[one.row[-1]], size)
    length = one.length
    cut: RowCut | None
    if staged:
        if lanes == most or not one.is_dense or length > gpu.warp * most:
            return None
        apart = cut_of(one.count, length, lanes, size, gpu)
        if not pays_staged(apart, one.count, length, size, gpu):
            return None
        cut = staged_cut(one.count, length, sum(e.buffer.dtype.bytes for e in one.kept), gpu)
        return None if cut is None else _launched(of, one, cut, length, names, found)
    if lanes < most and one.is_dense and length > gpu.warp * most:
        lanes = most  # vectors begin where memory does, and rows where they may
        length = (length - lanes + 1) // lanes * lanes
    cut = cut_of(one.count, length, lanes, size, gpu)
    if one.length - length > cut.along:
        return None  # what is before and behind vectors has a thread for each element
    return _launched(of, one, cut, length, names, found)


def _launched(  # noqa: PLR0917  # what rows are, and how they are cut
    of: Stages, one: RowPasses, cut: RowCut, length: int, names: Names, found: OneFold
) -> Stages:
    """A launch of blocks of rows."""
    writer = SumWriter(of, one, cut, length, names, found.last)
    blocks, along = (writer.block, writer.blocks), (writer.thread, cut.along)
    whole = block_launch(writer.summed(), blocks, along, (writer.lane, cut.high), beside=False)
    inputs = [writer.flat.get(each, each) for each in of.inputs]
    return stages(inputs, (ExternStage((found.last.out,), whole),))


def cut_of(rows: int, length: int, lanes: int, size: int, gpu: Gpu) -> RowCut:
    """How rows are cut that are read once: as many threads of each as fill the machine, and as read
    whole lines."""
    units = -(-length // lanes)
    filling = power_of_two(-(-2 * gpu.most // rows))
    along = max(filling, LINE // (lanes * size), power_of_two(-(-units // (2 * GROUP))))
    along = min(along, gpu.threads, power_of_two(units))
    high = max(1, min(gpu.threads // along, rows // gpu.processors))
    return RowCut(1, along, lanes, GROUP, 0, 0, high=high)


__all__ = ["row_sums", "staged_sums"]
