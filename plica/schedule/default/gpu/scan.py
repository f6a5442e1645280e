"""Scans on a GPU in the order of their places: each thread has a row.

    for i, k: y[i, k] = t[i] += x[i, k]   -->   for i0 in blockIdx.x: for i1 in threadIdx.x:
                                                    t = 0
                                                    for k: y[i, k] = t += x[i, k]

Where terms may be joined in another order, threads share a row
(`plica.schedule.default.gpu.running_block`).

>>> from plica.ir.loop.stages import kernel_of, stages_of
>>> from plica.ir.loop.tensor import buffer, compute, prefix
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (300, 50), f32)
>>> of = compute((x,), x.shape, lambda i, j: prefix("sum", 50, j, lambda k: x[i, k]))
>>> trace, _ = scan_threads(kernel_of(stages_of(of)), Gpu())
>>> "blockIdx.x" in trace.to_python()
True
"""

from __future__ import annotations

from math import prod

from plica.analysis.site import map_of
from plica.core import Name
from plica.ir.loop.statement import Block, Kernel
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.block_class import carried_by
from plica.schedule.dataflow import touched
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.thread import recorded
from plica.schedule.default.gpu.thread_map import shared_out
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle
from plica.schedule.trace import Trace


def scan_threads(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of a kernel with scans, a launch for each block; None of one that has none."""
    blocks = {name: site.node for name, site in map_of(kernel).blocks.items()}
    if not any("scan" in block.kinds for block in blocks.values()):
        return None

    @do
    def schedule() -> Body:
        for name, each in blocks.items():
            yield from _spread(name, each, gpu)

    return recorded(schedule(), kernel)


def _spread(name: Name, of: Block, gpu: Gpu) -> Body:
    """The rows of a block over threads, each of which traverses its own."""
    one = yield pr.block(str(name))
    every: tuple[Handle, ...] = yield pr.loops(one)
    both = list(zip(every, of.kinds, strict=True))
    rows = [loop for loop, kind in both if kind == "spatial"]
    along = [loop for loop, kind in both if kind != "spatial"]
    if rows and along:
        yield pr.reorder(*rows, *along)
    if carried := carried_by(of):
        _, writes = touched(of)
        for buffer in carried:
            yield pr.set_scope(one, writes.index(buffer), "local")
    sizes = [known(n) or 1 for n, kind in zip(of.extents, of.kinds, strict=True)
             if kind == "spatial"]  # fmt: skip
    if rows:
        places = yield shared_out(one, len(rows), gpu.threads_for(prod(sizes)), 1)
    else:
        thread = yield pr.add_unit_loop(along[0])
        places = (yield pr.add_unit_loop(thread)), thread
    yield pr.bind(places[0], "blockIdx.x")
    yield pr.bind(places[1], "threadIdx.x")
    if along:
        yield pr.decompose_reduction(one, along[0])
