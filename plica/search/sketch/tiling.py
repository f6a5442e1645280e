"""Tiling at several levels: a schedule for any kernel with a reduction, whatever it computes.

    for S0:                                    shared by cores
        for S1:
            sum[tile] = 0                      a tile of the result, local
            for R0:
                for S2:
                    for R1:                    written out
                        for S3: sum += …       the last is a vector, others are written out
            out[tile] = f(sum[tile])

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default import Machine
>>> from plica.search.sketch.variant import PRODUCT
>>> kernel = from_text(PRODUCT).values[0]
>>> trace = tiling(kernel, Machine(256, 16))
>>> [each for each in trace.decisions().values()]
[(1, 1, 1, 8), (1, 1, 1, 8), (8, 1)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.dependence import scope_of
from plica.analysis.site import Site, map_of
from plica.ir.loop import Block, Kernel, Store, loads
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.dataflow import stages
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import shared
from plica.schedule.default.tile import best_tile
from plica.schedule.do import Body, decided, do, trace_if_legal
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision
from plica.schedule.trace import Trace

WIDEST: Final = 64  # lanes that are written as one vector, at most
STEPS: Final = 16  # neighbours of another axis that are written out, at most
TERMS: Final = 8  # terms that are written out, at most
SHARED: Final = 1 << 16  # fewer terms than that are not worth waking other cores


def every_tiling(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedule with vectors along the last axis, then along each other that is long enough."""
    only = only_reduction(kernel)
    if only is None or (trace := tiling(kernel, machine)) is None:
        return
    yield "tiled", trace
    of = only.block
    spatial = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    for along in spatial[:-1]:
        if (known(of.extents[along]) or 1) > 1 and (other := tiling(kernel, machine, along)):
            yield f"along{along}", other
    length, lanes = known(of.extents[spatial[-1]]) or 1, _lanes(of, machine)
    is_uneven = length > lanes and length % lanes != 0
    if is_uneven and (other := tiling(kernel, machine, filled=True)) is not None:
        yield "filled", other
    for side in range(len({load.buffer for load in loads(of.body)})):
        if (other := tiling(kernel, machine, packed=side)) is not None:
            yield f"packed{side}", other


@lru_cache(maxsize=256)
def tiling(
    kernel: Kernel,
    machine: Machine,
    along: int | None = None,
    packed: int | None = None,
    filled: bool = False,
) -> Trace | None:
    """The schedule with vectors along an axis (by default the last), `filled` ones or not, and one
    operand packed, if named; None without a reduction."""
    if (only := only_reduction(kernel)) is None:
        return None
    of, readers = only.block, only.readers
    sizes = [known(extent) or 1 for extent in of.extents]
    spatial = [at for at, kind in enumerate(of.kinds) if kind == "spatial"]
    if along is not None:  # what is a vector is innermost
        spatial = [*[at for at in spatial if at != along], along]
    terms = [at for at, kind in enumerate(of.kinds) if kind == "reduce"]
    tiles = _decisions(of, sizes, spatial, machine)
    shares = machine.cores > 1 and prod(sizes) >= SHARED
    lanes = _lanes(of, machine)
    vector_splits: tuple[Decision, ...] = tuple(
        [(some, wide) for wide in (lanes, 2 * lanes, 4 * lanes) for some in (1, 2, 4)]
    )

    @do
    def schedule() -> Body:
        sum_ = yield pr.block(str(of.label))
        if readers:
            last = yield pr.block(str(readers[0].label))
            yield pr.set_scope(sum_, 0, "local")
        else:
            last = yield pr.cache_write(sum_, 0, "local")
        copied = None if packed is None else (yield pr.cache_read(sum_, packed, "local"))
        loop: tuple[Handle, ...] = yield pr.loops(sum_)
        levels: list[list[Handle]] = [[] for _ in range(6)]
        for at in spatial:
            most = WIDEST if at == spatial[-1] else STEPS
            parts: tuple[Handle | int | None, ...]
            if filled and at == spatial[-1]:
                some, wide = yield decided(pr.sample_tuple(vector_splits), *vector_splits[0])
                parts = (None, 1, some, wide)
            else:
                parts = yield decided(pr.sample_perfect_tile(loop[at], 4, most), *tiles[at])
            made: tuple[Handle, ...] = yield pr.split(loop[at], parts)
            for level, each in zip((0, 1, 3, 5), made, strict=True):
                levels[level].append(each)
        for at in terms:
            parts = yield decided(pr.sample_perfect_tile(loop[at], 2, TERMS), sizes[at], 1)
            made = yield pr.split(loop[at], parts)
            for level, each in zip((2, 4), made, strict=True):
                levels[level].append(each)
        yield pr.reorder(*[each for level in levels for each in level])
        yield pr.reverse_compute_at(last, levels[1][-1])
        yield pr.decompose_reduction(sum_, levels[2][0])
        if copied is not None:
            # The number of the copy's loops depends on the tile: no later step refers to them.
            yield pr.compute_at(copied, levels[2][-1])
        for each in (*levels[5][-2:-1], levels[4][-1]):
            yield pr.unroll(each)
        yield pr.vectorize(levels[5][-1])
        for one in only.others:
            copy = yield pr.block(str(one.label))
            around: tuple[Handle, ...] = yield pr.loops(copy)
            if around:
                yield pr.vectorize(around[-1])
        if shares:
            yield from shared(levels[0])

    return trace_if_legal(schedule(), kernel)


@frozen(eq=False)
class OnlyReduction:
    """The reduction of a kernel that has one, the block that reads it, if any, and all others."""

    block: Block
    readers: Sequence[Block]
    others: Sequence[Block]


def only_reduction(kernel: Kernel) -> OnlyReduction | None:
    """The reduction of a kernel, or None unless it has one, with at most one reader."""
    sites = [site for site in map_of(kernel).blocks.values() if is_reduction(site)]
    if len(sites) != 1:
        return None
    of, every = sites[0].node, stages(scope_of(kernel, sites[0])).values()
    (total,) = [each.writes[0] for each in every if each.block is of]
    readers = [each.block for each in every if total in each.inputs]
    others = [each.block for each in every if each.block not in (of, *readers)]
    return OnlyReduction(of, readers, others) if len(readers) < 2 else None


def is_reduction(of: Site[Block]) -> bool:
    """Whether a block is a single reduction over its own loops of static extent."""
    node = of.node
    loops_ = {loop.var: known(loop.extent) for loop in of.loops}
    return (
        node.init is not None
        and isinstance(node.body, Store)
        and "reduce" in node.kinds
        and "spatial" in node.kinds
        and set(node.kinds) <= {"reduce", "spatial"}
        and of.scope is None
        and node.bindings == tuple([loop.var for loop in of.loops])
        and all(loops_.values())
        and all(loop.kind == "serial" for loop in of.loops)
    )


def _decisions(
    of: Block, sizes: list[int], spatial: list[int], machine: Machine
) -> dict[int, Decision]:
    """Tiles by rule of thumb: the last axis makes vectors, the one before it steps."""
    last = spatial[-1]
    lanes = _divisor(sizes[last], _lanes(of, machine))
    steps = next((at for at in reversed(spatial[:-1]) if sizes[at] > 1), None)
    count = 1 if steps is None else sizes[steps]
    tile = best_tile(sizes[last] // lanes, count, machine.registers, machine.rates, exact=True)
    wide = lanes * _divisor(tile.vectors, max(1, WIDEST // lanes))
    found: dict[int, Decision] = {}
    for at in spatial:
        inner = 1
        if at == last:
            inner = wide
        elif at == steps:
            inner = _divisor(tile.steps, STEPS)
        found[at] = (sizes[at] // inner, 1, 1, inner)
    return found


def _lanes(of: Block, machine: Machine) -> int:
    """Elements of its result in a vector."""
    assert isinstance(of.body, Store)
    return machine.lanes(of.body.buffer.dtype)


def _divisor(of: int, most: int) -> int:
    """The greatest divisor that is not more."""
    return max(each for each in range(1, max(1, most) + 1) if of % each == 0)
