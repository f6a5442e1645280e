"""The schedule of a contraction in runs (`plica.schedule.default.summed`): each in registers.

for …, tiles:
    total[tile] = 0                                   f64
    for b:
        sum[tile] = 0                                 registers
        for terms: sum[tile] += data * weight
        total[tile] += f64(sum[tile])
    the same for the terms of `tail`, where there is one
    out[tile] = f(total[tile] + f64(tail[tile]))
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from plica.ir.loop.statement import Block
from plica.ir.type.dim import known
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    block,
    compute_at,
    decompose_reduction,
    loops,
    reorder,
    set_scope,
    split,
    unroll,
    vectorize,
)


def terms_of(of: Block | None) -> tuple[int, ...]:
    """The extents of the terms of a block, none where there is no block."""
    if of is None:
        return ()
    both = zip(of.kinds, of.extents, strict=True)
    return tuple([known(size) or 1 for kind, size in both if kind == "reduce"])


def run_within(
    of: Block,
    loop: Handle,
    counts: Mapping[int, int],
    lane: tuple[int, int],
) -> Generator[Any, Any, tuple[list[Handle], tuple[int, ...]]]:
    """The sum of a run, in registers, where its tile is added to the total; gives the loops of its
    terms and how many there are of each, those of one left out.

    A tile has so many places of each axis (`counts`), one of those that are not named; `lane` says
    which axis goes in vectors of how many.
    """
    long = tuple([each for each in terms_of(of) if each > 1])
    one = yield block(str(of.label))
    yield compute_at(one, loop)
    yield set_scope(one, 0, "local")
    every: tuple[Handle, ...] = yield loops(one)
    spatial = [at for at in sorted(counts) if counts[at] > 1]
    inside = every[len(every) - len(spatial) - len(long) :]
    found = dict(zip(spatial, inside, strict=False))
    *many, last = yield split(found.pop(lane[0]), (None, lane[1]))
    rest = inside[len(spatial) :]
    yield reorder(*rest, *found.values(), *many, last)
    start = (yield decompose_reduction(one, rest[0])) if rest else None
    for each in (*found.values(), *many):
        yield unroll(each)
    yield vectorize(last)
    if start is None:  # of one term
        return [], ()
    begun: tuple[Handle, ...] = yield loops(start)
    for each in begun[len(begun) - len(found) - len(many) - 1 : -1]:
        yield unroll(each)
    yield vectorize(begun[-1])
    return list(rest), long
