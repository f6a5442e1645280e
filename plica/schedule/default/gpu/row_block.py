"""Rows of any length along any axes on a GPU: a block keeps as much of them as possible, and reads
once.

    m[i]    = max over k of x[i, k]            for block i, for threads:
    s[i]    = sum over k of exp(…)      -->        own  = slices of x            registers
    y[i, j] = exp(x[i, j] - m[i]) / s[i]           held = more slices of x       shared memory
                                                   m = joined across threads;  s likewise
                                                   y[…] = … of own, of held, of what is read again

Rows that fit in a warp's registers belong to a warp (or a part of it), several per block, and
threads only wait for those of their row. Threads traverse a row in slices, adjacent elements by
adjacent threads. The first slices stay in registers, the next in shared memory, and the rest is
read again in each pass, from cache. A row along other axes than the last (a softmax of columns) is
adjacent to others: adjacent threads have these, two each, as many as fit. The statements are those
of `plica.schedule.default.gpu.row_writer`.

>>> cut_of(1280, 50257, 1, 4, 1, 1, Gpu())
RowCut(across=1, along=512, lanes=1, group=8, registers=4, shared=6, wide=1, high=1, staged=False)
>>> cut_of(16001, 4099, 1, 2, 1, 1, Gpu()).along, cut_of(1232, 2323, 1, 2, 1, 1, Gpu()).along
(128, 256)
>>> cut_of(2767, 888, 1, 2, 1, 8, Gpu())
RowCut(across=1, along=32, lanes=8, group=3, registers=1, shared=0, wide=1, high=8, staged=False)
>>> cut_of(1, 8192, 8192, 2, 1, 1, Gpu(), wide=2)
RowCut(across=8, along=128, lanes=1, group=16, registers=1, shared=2, wide=2, high=1, staged=False)
>>> cut_of(64, 21, 65536, 4, 1, 1, Gpu())
RowCut(across=128, along=2, lanes=1, group=8, registers=1, shared=0, wide=1, high=1, staged=False)
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from plica.ir.loop.stages import Stages
from plica.schedule.default.gpu.cost import BYTES, LAUNCH
from plica.schedule.default.gpu.fold_plan import count_of, pays_staged, staged_plan
from plica.schedule.default.gpu.machine import (
    LINE_BYTES,
    SECTOR_BYTES,
    THREADS_AT_ONCE,
    VECTOR_BYTES,
    WORD_BYTES,
    Gpu,
    power_of_two,
    vector_lanes,
)
from plica.schedule.default.gpu.row_cut import GROUP, RowCut
from plica.schedule.default.gpu.row_passes import RowPasses, holding_terms, reads_inside, row_passes
from plica.schedule.default.gpu.row_writer import RowWriter

KEPT: Final = 24
"""Registers of a thread for elements of a row, where a block has all threads; else a half more."""

FEW: Final = 32  # elements of a row per thread of a warp, if there are enough rows for all threads
AHEAD: Final = 48  # the maximum elements of a thread if values shared by rows are prefetched
HELD: Final = 40  # the maximum elements of a thread whose terms are kept instead of recomputed
PAIR: Final = 2  # adjacent columns per thread: more do not fit in registers
MOST_BLOCKS: Final = 3  # blocks of columns on a processor, at most
TOLD: Final = 9  # shared memory bytes per thread and pass for joining totals


def cut_of(  # noqa: PLR0917  # what rows are, and where
    rows: int, length: int, beside: int, size: int, kept: int, lanes: int, gpu: Gpu,
    passes: int = 2, wide: int = 1,
) -> RowCut:  # fmt: skip
    """The split of rows with some bytes of kept elements, from a number of loads each; a thread has
    this many adjacent ones."""
    if beside == 1 and (row_cut := _in_warps(rows, length, size, lanes, gpu)) is not None:
        return row_cut
    gpu = _shared_out(gpu, 2) if beside == 1 else _beside_others(length, size, passes, gpu)
    free = _free(gpu, passes * wide)
    beside //= wide
    most = (free + KEPT * gpu.block * 4) // (size * wide)
    across = min(max(1, LINE_BYTES // (min(size, 4) * wide)), power_of_two(beside), gpu.block)
    few = 1 << max(1, rows * beside // gpu.processors).bit_length() - 1
    while across * size * wide > SECTOR_BYTES and (across * length > most or across > few):
        across //= 2
    along = power_of_two(-(-length // GROUP))
    if (
        size < WORD_BYTES
        and lanes == beside * wide == 1
        and rows * along > 2 * gpu.processors * THREADS_AT_ONCE
    ):
        along = power_of_two(-(-length // (KEPT * 3 // 2)))  # as many as registers keep
    along = min(along, gpu.block // across)
    if across * along < gpu.threads:
        across = max(across, min(gpu.threads // along, power_of_two(beside), few))
    near = lanes * wide
    group = max(1, GROUP * 4 // (size * max(2, near)))
    step = along * lanes
    slices = length // step
    budget = KEPT if across * along > gpu.threads * 2 else KEPT * 3 // 2
    own = max(4 * kept, near * size) * group  # neighbours that are read at once share registers
    registers = min(slices // group, max(1, 4 * budget // own))
    room = free // (step * across * wide * size * group)
    shared = min(max(0, slices // group - registers), room)
    return RowCut(across, along, lanes, group, registers, shared, wide)


def _in_warps(rows: int, length: int, size: int, lanes: int, gpu: Gpu) -> RowCut | None:
    """Rows kept in the registers of single warps, several per block: their joins need no barriers.
    None if rows are too long, or too few."""
    few = max(lanes, min(FEW, -(-rows * length // gpu.most)))
    along = power_of_two(-(-length // few))
    if along > gpu.warp and length > GROUP * gpu.warp and rows * gpu.warp < gpu.most:
        return None  # more threads of a row have something to do
    along = min(along, gpu.warp)
    slices = -(-length // (along * lanes))
    high = min(gpu.threads // along, rows // gpu.processors)
    if slices * lanes * size > KEPT * 6 or high < 2:
        return None
    if length > gpu.warp * lanes and along < 2 * (lanes - 1):
        return None  # what is before and behind vectors has a thread for each element
    whole = length // (along * lanes)
    return RowCut(1, along, lanes, max(1, whole), min(1, whole), 0, high=high)


def _shared_out(gpu: Gpu, blocks: int) -> Gpu:
    """What one of some blocks that run at once has of a processor: one computes while another
    reads."""
    threads = 1 << (gpu.block // blocks).bit_length() - 1
    return evolve(gpu, block=threads, shared=gpu.shared // blocks)


def _free(gpu: Gpu, passes: int) -> int:
    """Bytes of shared memory for elements of rows."""
    return max(0, gpu.shared - (TOLD * gpu.block + SECTOR_BYTES * 8) * passes)


def _beside_others(length: int, size: int, passes: int, gpu: Gpu) -> Gpu:
    """The size of a block that keeps columns: a part of a processor, if columns of a memory sector
    fit in it."""
    for blocks in range(MOST_BLOCKS, 1, -1):
        part = _shared_out(gpu, blocks)
        if max(SECTOR_BYTES, size) * length <= _free(part, passes) + KEPT * part.block * 4:
            return part
    return gpu


def _wide(of: RowPasses, size: int) -> int:
    """Adjacent rows per thread: contiguous in memory, and loaded together."""
    inner = next(of.sizes[axis] for axis in reversed(of.lanes) if of.sizes[axis] != 1)
    return PAIR if inner % PAIR == 0 and PAIR * size <= VECTOR_BYTES else 1


def kept_rows(of: Stages, gpu: Gpu, *, columns: bool) -> Stages | None:
    """Stages of rows (of columns) as thread statements, or None."""
    passes = row_passes(of)
    if passes is None or (passes.beside > 1) != columns:
        return None
    sizes = [load.buffer.dtype.bytes for load in passes.kept]
    largest = max(*sizes, passes.last.out.dtype.bytes)
    most = 1 if columns else VECTOR_BYTES // largest
    lanes = 1 if columns else vector_lanes(passes.sizes[passes.row[-1]], largest)
    length = passes.length
    # Single elements of a word move as many bytes as a warp can request; smaller ones do not.
    shortest = gpu.threads if min(sizes) >= WORD_BYTES else gpu.warp
    # Values shared by rows are not aligned with the vectors: threads with adjacent vectors read
    # them far apart.
    if lanes < most and passes.is_dense and length > shortest * most and not passes.shared:
        lanes = most  # vectors begin where memory does, and rows where they may
        length = (length - lanes + 1) // lanes * lanes
    what = passes.count, length, passes.beside, sum(sizes), len(sizes), lanes
    wide = _wide(passes, sum(sizes)) if columns else 1
    cut = cut_of(*what, gpu, len(passes.passes), wide)
    if passes.length - length > cut.along or not _is_spread(passes, cut, sum(sizes), gpu):
        return None  # what is before and behind vectors has a thread for each element
    passes = passes if columns else _with_terms(_with_shared(passes, cut), cut)
    return RowWriter(of, passes, cut, length).stages()


def staged_rows(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages of consecutive rows that fill no vectors, a block's rows loaded as vectors through
    shared memory; None for others, or if a warp's threads read whole lines of a row anyway."""
    passes = row_passes(of)
    if passes is None or passes.beside > 1 or not passes.is_dense:
        return None
    sizes = [load.buffer.dtype.bytes for load in passes.kept]
    largest = max(*sizes, passes.last.out.dtype.bytes)
    lanes, most = vector_lanes(passes.sizes[passes.row[-1]], largest), VECTOR_BYTES // largest
    if lanes == most or (not passes.shared and passes.length > gpu.warp * most):
        return None  # vectors begin where memory does
    what = passes.count, passes.length, passes.beside, sum(sizes), len(sizes), lanes
    apart_cut = cut_of(*what, gpu, len(passes.passes))
    own, least = passes.length / apart_cut.along, min(sizes)
    elements = passes.count * passes.length
    if not pays_staged(apart_cut.step * least, own * least, elements, gpu):
        return None
    apart = 0 if passes.last.out.dtype.bytes in sizes else passes.last.out.dtype.bytes
    cut = staged_cut(passes.count, passes.length, sum(sizes) + apart, gpu)
    if cut is None or not _is_spread(passes, cut, sum(sizes), gpu):
        return None
    held = _with_terms(_with_shared(passes, cut), cut)
    return RowWriter(of, held, cut, passes.length).stages()


def staged_cut(rows: int, length: int, size: int, gpu: Gpu) -> RowCut | None:
    """The split of rows staged in shared memory, whatever their alignment."""
    if (plan := staged_plan(rows, length, size, gpu, vector_rows=1)) is None:
        return None
    along, high = count_of(plan, "term", "block"), count_of(plan, "row", "block")
    whole = length // along
    return RowCut(1, along, 1, max(1, whole), min(1, whole), 0, high=high, staged=True)


def _with_shared(of: RowPasses, cut: RowCut) -> RowPasses:
    """Rows with shared values kept, too, if there is room: all are loaded together."""
    mine = -(-of.length // cut.step) * cut.lanes
    if cut.shared or mine * (len(of.kept) + len(of.shared)) > AHEAD:
        return of
    inside = [load for load in of.shared if reads_inside(load, of.sizes)]
    return evolve(of, kept=(*of.kept, *inside))


def _with_terms(of: RowPasses, cut: RowCut) -> RowPasses:
    """Rows with terms that take much among what threads hold, if whole rows are in registers."""
    mine = -(-of.length // cut.step) * cut.near
    whole = (cut.registers + cut.shared) * cut.group == of.length // cut.step
    return holding_terms(of) if whole and not cut.shared and mine <= HELD else of


def _is_spread(of: RowPasses, cut: RowCut, size: int, gpu: Gpu) -> bool:
    """Whether processors have something to do, or have not for less than more launches take."""
    across = cut.across * cut.wide
    blocks = -(-of.count // cut.high) * -(-of.beside // across)
    cycles = 2 * across * of.length * size / BYTES
    return 2 * blocks >= gpu.processors or cycles <= 2 * LAUNCH * (len(of.passes) + 1)


def keeps_well(of: RowPasses, gpu: Gpu) -> bool:
    """Whether blocks that keep columns are many, and several of them on a processor, so that one
    computes while another reads."""
    sizes = [load.buffer.dtype.bytes for load in of.kept]
    what = of.count, of.length, of.beside, sum(sizes), len(sizes), 1
    cut = cut_of(*what, gpu, len(of.passes), _wide(of, sum(sizes)))
    part = _beside_others(of.length, sum(sizes), len(of.passes), gpu)
    return part is not gpu and _is_spread(of, cut, sum(sizes), gpu)
