"""Elementwise: a schedule for kernels that compute every element for itself.

    for outer loops:                      shared by cores
        for pieces of the last:
            u vectors                     written out
                v lanes

The number of vectors and of lanes is open; a last vector may be filled in part.  Lanes go along
rows, along another axis (of strided elements), or over all axes fused into one.

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default import Machine
>>> from plica.search.space import DOUBLED
>>> trace = elementwise(from_text(DOUBLED).values[0], Machine(256, 16))
>>> trace.decisions()
{2: (1, 8)}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final

from plica.analysis.site import map_of
from plica.ir.loop.statement import Kernel, Store
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import shared
from plica.schedule.do import Body, decided, do, trace_if_legal
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision
from plica.schedule.trace import Trace

UNROLLED_VECTORS: Final = (1, 2, 4, 8)  # how many vectors are written out
JOINED: Final = -1  # lanes over all axes as if they were one
SHARED: Final = 1 << 15  # fewer elements than that are not worth waking other cores


def every_way(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedules, by where lanes go: along rows, over all axes, along each other axis."""
    if (found := elementwise(kernel, machine)) is not None:
        yield "vectors", found
    if (sizes := _sizes(kernel)) is None:
        return
    if (found := elementwise(kernel, machine, JOINED)) is not None:
        yield "joined", found
    for axis, size in enumerate(sizes[:-1]):
        if size > 1 and (found := elementwise(kernel, machine, axis)) is not None:
            yield f"along{axis}", found


@lru_cache(maxsize=256)
def elementwise(kernel: Kernel, machine: Machine, along: int | None = None) -> Trace | None:
    """The schedule with lanes along an axis, by default the last; None for other kernels."""
    if (sizes := _sizes(kernel)) is None:
        return None
    (site,) = map_of(kernel).blocks.values()
    of, body = site.node, site.node.body
    assert isinstance(body, Store)
    joins = along == JOINED
    if joins and len(sizes) < 2:
        return None
    axis = len(sizes) - 1 if along is None else along
    row = prod(sizes) if joins else sizes[axis]
    pairs = _pairs(row, machine.lanes(body.buffer.dtype))
    shares = machine.cores > 1 and prod(sizes) >= SHARED

    @do
    def schedule() -> Body:
        block = yield pr.block(str(of.label))
        every: tuple[Handle, ...] = yield pr.loops(block)
        outer: list[Handle] = []
        if joins:
            last = yield pr.fuse(*every)
        else:
            outer, last = [one for at, one in enumerate(every) if at != axis], every[axis]
        written, lanes = yield decided(pr.sample_tuple(pairs), *pairs[0])
        pieces, several, lane = yield pr.split(last, (None, written, lanes))
        if outer and last is not every[-1]:
            yield pr.reorder(*outer, pieces, several, lane)
        yield pr.unroll(several)
        yield pr.vectorize(lane)
        if shares:
            yield from shared(outer or [pieces])

    return trace_if_legal(schedule(), kernel)


def _sizes(kernel: Kernel) -> list[int] | None:
    """The extents of the loops of a kernel that computes each element for itself."""
    blocks = list(map_of(kernel).blocks.values())
    if len(blocks) != 1 or not blocks[0].loops:
        return None
    (site,) = blocks
    sizes = [known(loop.extent) or 0 for loop in site.loops]
    plain = site.node.init is None and isinstance(site.node.body, Store)
    return sizes if plain and all(sizes) else None


def _pairs(row: int, lanes: int) -> tuple[Decision, ...]:
    """Vectors and their lanes, the usual ones first."""
    wide = [lanes, *[each for each in (lanes // 2, lanes * 2, lanes * 4) if each > 1]]
    found = [(u, v) for v in wide for u in UNROLLED_VECTORS if row % (u * v) == 0]
    return tuple(found or [(1, v) for v in wide if v < 2 * row] or [(1, 1)])
