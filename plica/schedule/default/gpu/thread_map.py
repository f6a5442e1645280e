"""A map to threads: one or a few adjacent elements of a result per thread.

    for i, j in grid(n, m):            for b in blockIdx.x(…):
        with block("y", …): …    -->       for t in threadIdx.x(256):
                                               for v in vectorized(4):
                                                   with block("y", …): …

Reductions before it are computed where they are read, in registers of that thread; those of many
terms are each made by the threads of a warp or a block:

    for i in range(n):                         for b in blockIdx.x(…):
        for k in range(m): s[i] += …    -->        for y in threadIdx.y(8):
                                                       for x in threadIdx.x(32):
                                                           for k0: s[i] += …

Adjacent threads read adjacent terms; or, if adjacent sums are contiguous in memory, terms of
adjacent sums, and terms are distributed down the block.
"""

from __future__ import annotations

from plica.schedule import primitive as pr
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.shape import BlockStage
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle

LANES = 4  # adjacent elements per thread
ROWS = 8  # sums that the threads of a block make at once


@do
def spread(
    last: BlockStage,
    before: tuple[BlockStage, ...],
    gpu: Gpu,
    wide: bool = True,
    lanes: int = LANES,
) -> Body:
    """The elements of the last block spread over threads, with the reductions it reads inside.

    If rows are divisible by `lanes`, a thread takes this many.
    """
    handle = yield pr.block(str(last.label))
    sums = []
    for each in before:
        sums.append((yield pr.block(str(each.label))))
    if last.reduce:  # what is summed is summed in a register, then written
        result = yield pr.cache_write(handle, 0, "local")
        sums, handle = [*sums, handle], result
    whole = wide and not sums and last.spatial and last.spatial[-1] % lanes == 0
    lanes = lanes if whole else 1
    inner = yield shared_out(
        handle, len(last.spatial), gpu.threads_for(last.elements // lanes), lanes
    )
    for each in reversed(sums):
        yield pr.compute_at(each, inner[1])
        if not (last.reduce and each is sums[-1]):
            yield pr.set_scope(each, 0, "local")
    yield pr.bind(inner[0], "blockIdx.x")
    yield pr.bind(inner[1], "threadIdx.x")
    if lanes > 1:
        yield pr.vectorize(inner[2])


@do
def shared_out(of: Handle, count: int, threads: int, lanes: int) -> Body:
    """The first loops of a block as one, cut into blocks, threads and neighbours; gives these."""
    around = yield pr.loops(of)
    mine = around[:count]  # a copy has no loops of length 1
    if not mine:  # one element
        thread = yield pr.add_unit_loop(of)
        return (yield pr.add_unit_loop(thread)), thread
    whole = mine[0] if len(mine) == 1 else (yield pr.fuse(*mine))
    if lanes > 1:
        return (yield pr.split(whole, (None, threads, lanes)))
    return (yield pr.split(whole, (None, threads)))


@do
def spread_apart(last: BlockStage, before: tuple[BlockStage, ...], gpu: Gpu) -> Body:
    """The same with loops unchanged: the first over blocks, the last over threads.

    That these are independent is seen of any shape, if not of all loops as one.
    """
    handle = yield pr.block(str(last.label))
    sums = []
    for each in before:
        sums.append((yield pr.block(str(each.label))))
    if last.reduce:
        result = yield pr.cache_write(handle, 0, "local")
        sums, handle = [*sums, handle], result
    around = (yield pr.loops(handle))[: len(last.spatial)]
    if len(around) < 2:
        inner = yield shared_out(handle, len(around), gpu.threads_for(last.elements), 1)
        first, lane, place = inner[0], inner[1], inner[1]
    else:
        first, lane = around[0], around[-1]
        turn, lane = yield pr.split(lane, (None, min(gpu.threads, last.spatial[-1])))
        yield pr.reorder(first, lane, *around[1:-1], turn)
        place = turn
    for each in reversed(sums):
        yield pr.compute_at(each, place)
        if not (last.reduce and each is sums[-1]):
            yield pr.set_scope(each, 0, "local")
    yield pr.bind(first, "blockIdx.x")
    yield pr.bind(lane, "threadIdx.x")


@do
def across(total: BlockStage, gpu: Gpu) -> Body:
    """The elements of a block, each a sum made by many threads.

    Where warps would leave processors without work, all threads of a block make one sum.
    """
    handle = yield pr.block(str(total.label))
    around = yield pr.loops(handle)
    count = len(total.spatial)
    inner = around[count:]
    k = inner[0] if len(inner) == 1 else (yield pr.fuse(*inner))
    alone = total.elements * gpu.warp < gpu.most and total.terms >= gpu.threads
    turns, lane = yield pr.split(k, (None, gpu.threads if alone else gpu.warp))
    yield pr.reorder(lane, turns)
    if not count:  # one sum
        yield pr.bind(lane, "threadIdx.x")
        return
    whole = around[0] if count == 1 else (yield pr.fuse(*around[:count]))
    if not alone:
        whole, row = yield pr.split(whole, (None, ROWS))
        yield pr.bind(row, "threadIdx.y")
    yield pr.bind(whole, "blockIdx.x")
    yield pr.bind(lane, "threadIdx.x")


@do
def down(total: BlockStage, gpu: Gpu) -> Body:
    """The same where neighbours among the elements are neighbours in memory."""
    handle = yield pr.block(str(total.label))
    around = yield pr.loops(handle)
    count = len(total.spatial)
    whole = around[0] if count == 1 else (yield pr.fuse(*around[:count]))
    each, lane = yield pr.split(whole, (None, gpu.warp))
    inner = around[count:]
    k = inner[0] if len(inner) == 1 else (yield pr.fuse(*inner))
    turns, part = yield pr.split(k, (None, ROWS))
    yield pr.reorder(each, lane, part, turns)
    yield pr.bind(each, "blockIdx.x")
    yield pr.bind(lane, "threadIdx.x")
    yield pr.bind(part, "threadIdx.y")
