"""Split sums: terms of a reduction are added up side by side, and these sums in the end.

    for outputs:                                shared by cores
        part[l] = 0                             l lanes, local
        for terms in steps of l:
            part[l] += …                        a vector
        sum = part[0] + part[1] + …
    out = f(sum)

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default import Machine
>>> from plica.search.sketch.variant import PRODUCT
>>> kernel = from_text(PRODUCT).values[0]
>>> [(name, *trace.decisions().values()) for name, trace in split_sums(kernel, Machine(256, 16))]
[('over2', (2,))]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from plica.ir.loop.statement import Kernel, Store
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import shared
from plica.schedule.do import Body, decided, do, trace_if_legal
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision
from plica.schedule.trace import Trace
from plica.search.sketch.tiling import SHARED, WIDEST, only_reduction


def split_sums(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedules, by the axis of terms that gives the lanes."""
    only = only_reduction(kernel)
    for at, kind in enumerate(only.block.kinds if only is not None else ()):
        if kind == "reduce" and (trace := _over(kernel, machine, at)) is not None:
            yield f"over{at}", trace


@lru_cache(maxsize=256)
def _over(kernel: Kernel, machine: Machine, at: int) -> Trace | None:
    """The schedule with lanes along one reduction axis, or None if it is refused."""
    only = only_reduction(kernel)
    assert only is not None
    of, readers, body = only.block, only.readers, only.block.body
    assert isinstance(body, Store)
    sizes = [known(extent) or 1 for extent in of.extents]
    spatial = [n for n, kind in enumerate(of.kinds) if kind == "spatial"]
    terms = [n for n, kind in enumerate(of.kinds) if kind == "reduce" and n != at]
    counts = _counts(sizes[at], machine.lanes(body.buffer.dtype))
    if not counts or not spatial:
        return None
    shares = machine.cores > 1 and prod(sizes) >= SHARED

    @do
    def schedule() -> Body:
        sum_ = yield pr.block(str(of.label))
        loop: tuple[Handle, ...] = yield pr.loops(sum_)
        (lanes,) = yield decided(pr.sample_tuple(counts), *counts[0])
        outer, lane = yield pr.split(loop[at], (None, lanes))
        yield pr.reorder(*[loop[n] for n in (*spatial, *terms)], outer, lane)
        part = yield pr.rfactor(lane, len(body.buffer.shape))
        around: tuple[Handle, ...] = yield pr.loops(sum_)
        yield pr.set_scope(part, 0, "local")
        yield pr.compute_at(part, around[len(spatial) - 1])
        if readers:
            yield pr.set_scope(sum_, 0, "local")
            last = yield pr.block(str(readers[0].label))
            yield pr.reverse_compute_at(last, around[len(spatial) - 1])
        own: tuple[Handle, ...] = yield pr.loops(part)
        first, *rest = own[len(spatial) :]
        yield pr.reorder(*rest, first)
        yield pr.decompose_reduction(part, rest[0])
        yield pr.vectorize(first)
        yield pr.unroll(around[-1])
        if shares:
            yield from shared(around[: len(spatial)])

    return trace_if_legal(schedule(), kernel)


def _counts(extent: int, lanes: int) -> tuple[Decision, ...]:
    """How many sums are side by side: what divides the terms, whole vectors first."""
    most = min(WIDEST, extent // 2)  # a loop of one term would be none, and later steps ask for it
    every = [each for each in range(2, most + 1) if extent % each == 0]
    return tuple([(each,) for each in sorted(every, key=lambda of: (of % lanes != 0, of))])
