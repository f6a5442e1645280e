"""Each: a schedule for kernels that compute every element for itself.

    for outer loops:                      shared by cores
        for pieces of the last:
            u vectors                     written out
                v lanes

How many vectors are written out, and how many lanes they have, is open; where no vector divides a
row, its last one is filled in part.

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default import Machine
>>> from plica.search.space import DOUBLED
>>> trace = each(from_text(DOUBLED).values[0], Machine(256, 16))
>>> trace.decisions()
{2: (1, 8)}
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Final

from plica.analysis.site import map_of
from plica.core.collector import paused
from plica.ir.loop.statement import Kernel, Store
from plica.ir.type.dim import known
from plica.schedule import primitive as pr
from plica.schedule.default.machine import Machine
from plica.schedule.do import Body, decided, do, run
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace

WRITTEN: Final = (1, 2, 4, 8)
"""How many vectors are written out."""

SHARED: Final = 1 << 15
"""Fewer elements than that are not worth waking other cores."""


@lru_cache(maxsize=256)
def each(kernel: Kernel, machine: Machine) -> Trace | None:
    """The schedule, None where a kernel is something else."""
    blocks = list(map_of(kernel).blocks.values())
    if len(blocks) != 1 or not blocks[0].loops:
        return None
    (site,) = blocks
    of, sizes = site.node, [known(loop.extent) for loop in site.loops]
    body = of.body
    if of.init is not None or not isinstance(body, Store) or not all(sizes):
        return None
    row = sizes[-1] or 1
    pairs = _pairs(row, machine.lanes(body.buffer.dtype))
    shares = machine.cores > 1 and prod([size or 1 for size in sizes]) >= SHARED

    @do
    def schedule() -> Body:
        one = yield pr.block(str(of.label))
        every: tuple[Handle, ...] = yield pr.loops(one)
        *outer, last = every
        written, lanes = yield decided(pr.sample_tuple(pairs), *pairs[0])
        pieces, several, lane = yield pr.split(last, (None, written, lanes))
        yield pr.unroll(several)
        yield pr.vectorize(lane)
        if shares:
            around = outer or [pieces]
            whole = around[0]
            if len(around) > 1:
                whole = yield pr.fuse(*around)
            yield pr.parallel(whole)

    with paused():
        try:
            steps, _, _ = run(schedule(), kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps)


def _pairs(row: int, lanes: int) -> tuple[Decision, ...]:
    """Vectors and their lanes, the usual ones first."""
    wide = [lanes, *[each for each in (lanes // 2, lanes * 2, lanes * 4) if each > 1]]
    found = [(u, v) for v in wide for u in WRITTEN if row % (u * v) == 0]
    return tuple(found or [(1, v) for v in wide if v < 2 * row] or [(1, 1)])
