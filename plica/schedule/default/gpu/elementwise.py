"""Elementwise work on threads: vectors of neighbours, several of them by a thread.

    y[i] = f(x[i], …)    -->  for b in blockIdx.x(…):
                                  for t in threadIdx.x(256):
                                      for n in unrolled(2):
                                          for v in vectorized(4): y[…] = f(x[…], …)

A thread's vectors are strided, so that adjacent threads always have adjacent ones; several are in
flight. Rows that fill no vectors are merged to one row of all elements: its operands are vectors,
and shared values are read per element. The last thread handles a partial vector element by element.

    y[i, j] = f(x[i, j], b[j])    -->  for t in threads:
                                           for v in vectorized(8):
                                               if 8 * t + v < n: y[8 * t + v] = f(x[8 * t + v], …)

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

from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default.gpu.machine import THREADS_AT_ONCE, VECTOR_BYTES, Gpu, vector_lanes
from plica.schedule.default.gpu.one_fold import computed_there
from plica.schedule.default.gpu.row_passes import lies_along
from plica.schedule.default.gpu.shape import BlockStage
from plica.schedule.default.gpu.thread_code import digits, flattened
from plica.schedule.do import Body, do

TURNS: Final = 2  # the vectors in flight per thread, if there are enough for all threads


SHARED: Final = 8
"""Elements, at least, that read the same where what they read is not as large as the result."""


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
    units = -(-elements // lanes)
    threads = gpu.threads_for(units)
    if even:
        threads = next(n for n in range(min(units, gpu.threads), 0, -1) if units % n == 0)
    many = elements >= 2 * gpu.processors * THREADS_AT_ONCE * lanes * TURNS
    twice = units % (threads * TURNS) == 0
    return ThreadTiling(threads, TURNS if many and twice else 1, lanes)


@do
def elementwise(of: BlockStage, size: int, gpu: Gpu, last: int = 1, even: bool = False) -> Body:
    """The elements of a block over threads; `last` are neighbours."""
    if not of.spatial:
        yield pr.bind((yield pr.add_unit_loop((yield pr.block(str(of.label))))), "threadIdx.x")
        return
    cut = cut_of(of.elements, last, size, gpu, even)
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


def flat_elements(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages without sums as vectors of all their elements; None for others, if rows are whole
    vectors, or if large operands are not in the order of the result."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if len(every) != len(of.stages) or of.outputs != (every[-1].out,):
        return None
    *before, one = every
    sizes = {axis: known(n) or 0 for axis, n in zip(one.axes, one.out.shape, strict=True)}
    wide = [axis for axis in one.axes if sizes[axis] != 1]
    count = prod(sizes.values())
    if not wide or not count or any(reductions(stage.value) for stage in every):
        return None
    value = computed_there(one.value, {stage.out: stage for stage in before})
    value = substitute(value, {axis: sc.index(0) for axis in one.axes if sizes[axis] == 1})
    flat = {one.out: flattened(one.out)}
    for load in loads(value):
        elements = prod([known(n) or 0 for n in load.buffer.shape])
        if lies_along(load, one.axes, sizes):
            flat[load.buffer] = flattened(load.buffer)
        elif elements * SHARED > count:
            return None
    if any(load.buffer in flat and not lies_along(load, one.axes, sizes) for load in loads(value)):
        return None
    lanes = VECTOR_BYTES // max(buffer.dtype.bytes for buffer in flat)
    if len(flat) == 1 or lanes < 2 or count < lanes * gpu.most or sizes[wide[-1]] % lanes == 0:
        return None
    place = Names(of).var("i")

    def instead(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer in flat:
            return sc.Load(flat[node.buffer], (place,))
        return node

    here = substitute(map_bottom_up(instead, value), digits(wide, sizes, place))
    inputs = [flat.get(buffer, buffer) for buffer in of.inputs]
    return stages(inputs, (Each(flat[one.out], (place,), here),))
