"""Elementwise work on threads: vectors of neighbours, several of them by a thread.

    y[i] = f(x[i], …)    -->  for b in blockIdx.x(…):
                                  for t in threadIdx.x(256):
                                      for n in unrolled(2):
                                          for v in vectorized(4): y[…] = f(x[…], …)

A thread's vectors are far apart, so that neighbouring threads always have neighbouring ones; more
than one of them are under way at once.

>>> cut_of(1 << 28, 1 << 13, 4, Gpu())
ThreadTiling(threads=256, turns=2, lanes=4)
>>> cut_of(1000, 1000, 4, Gpu())
ThreadTiling(threads=256, turns=1, lanes=4)
>>> cut_of(1000, 1000, 4, Gpu(), even=True)
ThreadTiling(threads=250, turns=1, lanes=4)
>>> cut_of(1009, 1009, 4, Gpu())
ThreadTiling(threads=256, turns=1, lanes=1)
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.schedule import primitive as pr
from plica.schedule.default.gpu.machine import Gpu, vector_lanes
from plica.schedule.default.gpu.shape import BlockStage
from plica.schedule.do import Body, do

TURNS: Final = 2
"""Vectors that a thread has under way at once, where there are enough for all threads."""

BUSY: Final = 2048
"""Threads that a processor runs at once."""


@frozen
class ThreadTiling:
    """Threads of a block, vectors of a thread, and elements of a vector."""

    threads: int
    turns: int
    lanes: int


def cut_of(elements: int, last: int, size: int, gpu: Gpu, even: bool = False) -> ThreadTiling:
    """How elements of some bytes are cut; `last` are neighbours.

    Where blocks are `even`, none has threads without an element.
    """
    lanes = vector_lanes(last, size)
    units = elements // lanes
    threads = gpu.threads_for(units)
    if even:
        threads = next(n for n in range(min(units, gpu.threads), 0, -1) if units % n == 0)
    many = elements >= 2 * gpu.processors * BUSY * lanes * TURNS
    twice = units % (threads * TURNS) == 0
    return ThreadTiling(threads, TURNS if many and twice else 1, lanes)


@do
def elementwise(of: BlockStage, size: int, gpu: Gpu, wide: bool = True, even: bool = False) -> Body:
    """The elements of a block over threads."""
    if not of.spatial:
        yield pr.bind((yield pr.add_unit_loop((yield pr.block(str(of.label))))), "threadIdx.x")
        return
    cut = cut_of(of.elements, of.spatial[-1] if wide else 1, size, gpu, even)
    around = yield pr.loops((yield pr.block(str(of.label))))
    whole = around[0] if len(around) == 1 else (yield pr.fuse(*around))
    inner = None
    if cut.turns > 1:
        each, turn, thread, inner = yield pr.split(whole, (None, cut.turns, cut.threads, cut.lanes))
        yield pr.reorder(each, thread, turn, inner)
        yield pr.unroll(turn)
    elif cut.lanes > 1:
        each, thread, inner = yield pr.split(whole, (None, cut.threads, cut.lanes))
    else:
        each, thread = yield pr.split(whole, (None, cut.threads))
    yield pr.bind(each, "blockIdx.x")
    yield pr.bind(thread, "threadIdx.x")
    if inner is not None and cut.lanes > 1:
        yield pr.vectorize(inner)
