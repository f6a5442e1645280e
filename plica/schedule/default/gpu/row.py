"""Rows: sums and maxima of a row and what follows from them (softmax, norms), by one block a row.

    m[i]    = max over k of x[i, k]            for i in blockIdx.x:
    e[i, j] = exp(x[i, j] - m[i])                  row of x into registers       threads, vectors
    s[i]    = sum over k of e[i, k]     -->        m across the threads
    y[i, j] = e[i, j] / s[i]                       row of e into registers
                                                   s across the threads
                                                   row of y                      threads, vectors

Each thread has the same places of every row, so that a row is read once and written once. Short
rows share a block; the last block may have fewer. Rows too long for registers, or not evenly
divisible among whole warps, are handled by `plica.schedule.default.gpu.row_block`.

>>> shape_of(8192, 8192, 4, Gpu())
RowShape(threads=256, lanes=4, beside=1)
>>> shape_of(128, 768, 4, Gpu())
RowShape(threads=192, lanes=4, beside=1)
>>> shape_of(1000, 1000, 4, Gpu())
RowShape(threads=125, lanes=4, beside=2)
>>> shape_of(100000, 64, 4, Gpu())
RowShape(threads=2, lanes=4, beside=125)
>>> shape_of(11549, 16, 4, Gpu())
RowShape(threads=4, lanes=4, beside=64)
>>> shape_of(11549, 16, 2, Gpu())
RowShape(threads=2, lanes=8, beside=87)
>>> shape_of(5914, 16, 2, Gpu())
RowShape(threads=2, lanes=8, beside=16)
>>> shape_of(2, 1000003, 4, Gpu()) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.analysis.site import map_of
from plica.core import Name, free_vars, post_order
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.loop.scalar import Buffer, Div, Intrinsic, Load, Pow
from plica.ir.loop.statement import Block, Kernel
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.dataflow import stages as flow
from plica.schedule.default.gpu.machine import VECTOR_BYTES, WORD_BYTES, Gpu, vector_lanes
from plica.schedule.default.gpu.shape import BlockStage, inlined
from plica.schedule.default.gpu.warp_meaning import SHUFFLED
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle

MOST: Final = 32
"""Elements of a row per thread, if there are enough rows for all threads; otherwise as many as
leave work for each concurrent thread."""

FULL: Final = 64  # the maximum elements per thread; at most half of the registers
SHORTEST: Final = 32  # sums of fewer terms are a thread's own
THREADS: Final = 1024  # threads of a block, at most
SHARED: Final = 64  # the row threads from which values shared by rows are kept per thread


@frozen
class RowShape:
    """Threads per row, contiguous elements per thread, and rows per block."""

    threads: int
    lanes: int
    beside: int


def shape_of(rows: int, length: int, size: int, gpu: Gpu) -> RowShape | None:
    """The split of a row of elements of some bytes, or None if it cannot be even."""
    lanes = vector_lanes(length, size)
    units = length // lanes
    few = min(MOST, max(lanes, -(-rows * length // gpu.most)))
    parts = [n for n in range(1, min(units, THREADS) + 1) if units % n == 0]
    wanted = -(-length // few)
    threads = next((n for n in parts if n >= wanted), parts[-1])
    even = [n for n in parts if n % gpu.warp == 0 and n >= min(threads, gpu.warp)]
    if threads > gpu.warp and threads % gpu.warp and even:  # whole warps
        threads = next((n for n in even if n >= threads), even[-1])
    if threads > gpu.threads and length <= MOST * gpu.threads:
        threads = next((n for n in reversed(parts) if n <= gpu.threads), threads)
    if length > min(FULL, gpu.registers // (2 * threads)) * threads:
        return None
    # Few rows fill a warp, if there are as many for each processor.
    room = gpu.threads if rows * threads > gpu.most // 4 else min(gpu.warp, gpu.threads)
    each = max(1, rows // gpu.processors)
    most = max(1, room // threads)
    most = most if room > gpu.warp else min(most, each)
    dividing = range(most, (most - 1) // 2, -1)
    spread = min(most, each)  # the last block has fewer
    beside = next((n for n in dividing if rows % n == 0), spread)
    return RowShape(threads, lanes, beside)


def costly_rows(kernel: Kernel, every: Sequence[BlockStage]) -> tuple[Name, ...]:
    """Rows between the stages that cost too much to be made again for each who reads them."""
    blocks = map_of(kernel).blocks
    found = []
    for block_stage in every[:-1]:
        node = blocks[block_stage.label].node
        if block_stage.reduce or block_stage.spatial != every[-1].spatial or not _is_costly(node):
            continue
        (written,) = flow(kernel.body)[block_stage.label].writes
        readers = [other for other in flow(kernel.body).values() if written in other.inputs]
        if len(readers) > 1 and all(_reads_row(r.block, written) for r in readers):
            found.append(block_stage.label)
    return tuple(found)


def _is_costly(node: Block) -> bool:
    return any(isinstance(term, Intrinsic | Div | Pow) for term in post_order(node.body))


def _reads_row(node: Block, buffer: Buffer) -> bool:
    """Whether a block reads elements of its own row: indexed by all row variables, and its last
    variable.

    Axes of length 1 say nothing.
    """
    own = [var for var, size in zip(node.vars, node.extents, strict=True) if known(size) != 1]
    wide = [at for at, size in enumerate(buffer.shape) if known(size) != 1]
    places = [*own[: len(wide) - 1], *own[-1:]]
    loads = [e for e in post_order(node) if isinstance(e, Load) and e.buffer is buffer]
    return len(own) >= len(wide) and all([e.indices[at] for at in wide] == places for e in loads)


@frozen(eq=False)
class Rowed:
    """The stages of rows, their shape, and which inputs are kept: reader, number, axes.

    The last stage makes a row, or `ends` in one element of each.
    """

    stages: tuple[BlockStage, ...]
    kept: tuple[tuple[Name, int, int], ...]
    shape: RowShape
    ends: bool = False


def rowed(
    kernel: Kernel, left: tuple[BlockStage, ...], gpu: Gpu, *, uneven: bool = True
) -> Rowed | None:
    """Stages as stages of rows, or None for others; unless `uneven` is allowed, also None if a row
    has more threads than a warp and no whole warps."""
    sums = [block_stage for block_stage in left if block_stage.reduce]
    last = left[-1]
    if not sums:
        return None
    length, rows = sums[0].terms, last.elements
    ends = bool(last.reduce) or last.elements == sums[0].elements
    if not ends:
        if len(last.spatial) < 2 or last.spatial[-1] != length or len(sums[0].reduce) != 1:
            return None
        rows //= length
    elif length < SHORTEST or any(not block_stage.reduce for block_stage in left[:-1]):
        return None
    outer = tuple([size for size in sums[0].spatial if size != 1])
    for each in left:
        wanted = outer if each.reduce or (ends and each is last) else (*outer, length)
        found = tuple([size for size in each.spatial if size != 1])
        if found != wanted or (each.reduce and each.terms != length) or not each.spatial:
            return None
    every = flow(kernel.body)
    if ends and not all(reads_along(every[block_stage.label].block) for block_stage in sums):
        return None
    (result,) = every[last.label].writes
    shape = shape_of(rows, length, result.dtype.bytes, gpu)
    if shape is None:
        return None
    shuffled = all(every[block_stage.label].writes[0].dtype in SHUFFLED for block_stage in sums)
    whole_warps = 0 in (shape.threads % gpu.warp, gpu.warp % shape.threads)
    if not (uneven or (shuffled and whole_warps)):
        return None  # parts are joined with a barrier for each half
    size = result.dtype.bytes
    if not (
        uneven or shape.lanes * size >= WORD_BYTES or length <= gpu.warp * (VECTOR_BYTES // size)
    ):
        return None  # odd rows of narrow elements are read in vectors by other forms
    kept: dict[Buffer, tuple[Name, int, int]] = {}
    buffers = {buffer for flow_stage in every.values() for buffer in flow_stage.writes}
    for stage in left:
        for number, buffer in enumerate(every[stage.label].inputs):
            readers = [flow_stage for flow_stage in every.values() if buffer in flow_stage.inputs]
            if buffer in buffers or buffer in kept or (len(readers) < 2 and not ends):
                continue
            sizes = [known(size) for size in buffer.shape]
            whole = [size for size in sizes if size != 1]
            # A row that all sums share is read as often: as many neighbours of it at once.
            same = ends and whole == [length] and shape.threads >= SHARED
            if not (same or whole == [*outer, length]) or sizes[-1] != length:
                continue
            if all(_reads_row(reader.block, buffer) for reader in readers):
                kept[buffer] = stage.label, number, len(sizes)
                shape = RowShape(shape.threads, shape.lanes, 1) if same else shape
    if not kept and shape.lanes > 1:
        shape = shape_of(rows, length, VECTOR_BYTES, gpu) or shape
    return Rowed(left, tuple(kept.values()), shape, ends)


def reads_along(node: Block) -> bool:
    """Whether neighbouring terms of a sum are neighbours in all that is read of each."""
    reduce = tuple([v for v, kind in zip(node.vars, node.kinds, strict=True) if kind == "reduce"])
    loads = [each for each in post_order(node.body) if isinstance(each, Load)]
    found = [load for load in loads if not free_vars(load).isdisjoint(reduce)]
    return bool(found) and all(load.indices[-len(reduce) :] == reduce for load in found)


def reads_once(node: Block) -> bool:
    """Whether terms of a sum are neighbours, and no other sum has the same ones."""
    terms = [v for v, kind in zip(node.vars, node.kinds, strict=True) if kind == "reduce"]
    loads = [each for each in post_order(node.body) if isinstance(each, Load)]
    found = [load for load in loads if not free_vars(load).isdisjoint(terms)]
    return reads_along(node) and all(free_vars(load).issuperset(node.vars) for load in found)


@do
def by_rows(of: Rowed, inline: tuple[Name, ...]) -> Body:
    """The schedule of stages of rows; some blocks before them are computed where they are read."""
    yield inlined(inline)
    shape, last = of.shape, of.stages[-1]
    handles: dict[Name, Handle] = {}
    for stage in of.stages:
        handles[stage.label] = yield pr.block(str(stage.label))
    copies: dict[Handle, int] = {}
    for label, number, rank in of.kept:
        copies[(yield pr.cache_read(handles[label], number))] = rank
    around = yield pr.loops(handles[last.label])
    rows = around[: len(last.spatial) if of.ends else len(last.spatial) - 1]
    row = rows[0] if len(rows) == 1 else (yield pr.fuse(*rows))
    each_block = None
    if shape.beside > 1:
        each_block, row = yield pr.split(row, (None, shape.beside))
    inner = [handles[stage.label] for stage in of.stages[:-1]]
    for handle in (*reversed(inner), *copies):
        yield pr.compute_at(handle, row)
    sums = {handles[stage.label]: stage for stage in of.stages if stage.reduce}
    threads: list[tuple[Handle, Handle | None]] = []
    for handle in (*copies, *inner, handles[last.label]):
        if of.ends and handle is handles[last.label] and not last.reduce:
            threads.append(((yield pr.add_unit_loop(handle)), None))
            continue
        along = (yield pr.loops(handle))[-len(sums[handle].reduce) if handle in sums else -1 :]
        whole = along[0] if len(along) == 1 else (yield pr.fuse(*along))
        turns, t, lane = yield pr.split(whole, (None, shape.threads, shape.lanes))
        yield pr.reorder(t, turns, lane)
        threads.append((t, None if handle in sums or shape.lanes == 1 else lane))
    for handle in (*copies, *inner):
        if handle not in sums:
            rank = copies.get(handle, len(last.spatial))
            yield pr.transform_layout(handle, "write", 0, laid_out(rank, shape))
    for handle in (*copies, *inner):
        yield pr.set_scope(handle, 0, "shared")
    yield pr.bind(row if each_block is None else each_block, "blockIdx.x")
    if each_block is not None:
        yield pr.bind(row, "threadIdx.y")
    for t, lane in threads:
        yield pr.bind(t, "threadIdx.x")
        if lane is not None:
            yield pr.vectorize(lane)


def laid_out(rank: int, shape: RowShape) -> IndexMap:
    """The layout of row elements: iteration, thread, neighbour."""
    turn, lanes = shape.threads * shape.lanes, shape.lanes
    return index_map(
        lambda *places: (*places[:-1], places[-1] // turn, places[-1] % turn // lanes,
                         places[-1] % lanes),
        rank,
    )  # fmt: skip
