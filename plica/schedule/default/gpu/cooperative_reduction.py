"""Cooperative reductions: sums of many terms, each by the threads of a warp or a block.

    for i in range(n):                         for b in blockIdx.x(…):
        for k in range(m): s[i] += …    -->        for y in threadIdx.y(8):
                                                       for x in threadIdx.x(32):
                                                           for k0: s[i] += …

Adjacent threads read adjacent terms; or, if adjacent sums are contiguous in memory, terms of
adjacent sums, and terms are distributed down the block.
"""

from __future__ import annotations

from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.shape import BlockStage
from plica.schedule.do import Body, do
from plica.schedule.primitive import bind, block, fuse, loops, reorder, split

ROWS = 8  # sums that the threads of a block make at once


@do
def across(total: BlockStage, gpu: Gpu) -> Body:
    """The elements of a block, each a sum made by many threads.

    Where warps would leave processors without work, all threads of a block make one sum.
    """
    handle = yield block(str(total.label))
    around = yield loops(handle)
    count = len(total.spatial)
    inner = around[count:]
    k = inner[0] if len(inner) == 1 else (yield fuse(*inner))
    alone = total.elements * gpu.warp < gpu.most and total.terms >= gpu.threads
    turns, lane = yield split(k, (None, gpu.threads if alone else gpu.warp))
    yield reorder(lane, turns)
    if not count:  # one sum
        yield bind(lane, "threadIdx.x")
        return
    whole = around[0] if count == 1 else (yield fuse(*around[:count]))
    if not alone:
        whole, row = yield split(whole, (None, ROWS))
        yield bind(row, "threadIdx.y")
    yield bind(whole, "blockIdx.x")
    yield bind(lane, "threadIdx.x")


@do
def down(total: BlockStage, gpu: Gpu) -> Body:
    """The same where neighbours among the elements are neighbours in memory."""
    handle = yield block(str(total.label))
    around = yield loops(handle)
    count = len(total.spatial)
    whole = around[0] if count == 1 else (yield fuse(*around[:count]))
    each, lane = yield split(whole, (None, gpu.warp))
    inner = around[count:]
    k = inner[0] if len(inner) == 1 else (yield fuse(*inner))
    turns, part = yield split(k, (None, ROWS))
    yield reorder(each, lane, part, turns)
    yield bind(each, "blockIdx.x")
    yield bind(lane, "threadIdx.x")
    yield bind(part, "threadIdx.y")
