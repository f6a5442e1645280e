"""The schedule of a contraction: a tile of sums in registers, finished where it is made.

for …, tiles of lanes, tiles of the other axis:
    sum[tile] = 0                                  registers
    for terms: sum[tile] += data * weight          vectors x single elements
    out[tile] = f(sum[tile])

The tile and the order of tiles are chosen by `plica.schedule.default.register_tile`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod
from typing import Any

from attrs import frozen

from plica.schedule import primitive as st
from plica.schedule.default.machine import LINE, MIN_LANES
from plica.schedule.default.nest import vectors
from plica.schedule.default.register_tile import (
    TileLoop,
    is_one_row,
    loops_around,
    loops_outside,
    term_extents,
)
from plica.schedule.default.role import ContractionBlocks, Roles
from plica.schedule.default.run_schedule import (
    BRIEF,
    HELD,
    Sums,
    TileNest,
    epilogue_after,
    has_rows,
    run_by_run,
    run_within,
    written_out,
)
from plica.schedule.default.share import SharedReads, share_of, shared
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

PASSES = 16  # a tile of weights that is used more often than that need not be fetched ahead


def scheduled(
    of: Roles,
    blocks: ContractionBlocks,
    tile: RegisterTile,
    lanes: int,
    block_of: int = 0,
    *,
    pads: bool = False,
    cores: int = 1,
    region: float = 0.0,
    reads: tuple[float, float] = (0.0, 0.0),
    fetches: bool = False,
    ahead: int = 0,
    beside: int | None = None,
    rows: int = 0,
) -> Do:
    """The schedule with a tile; where the lanes are part of a loop, this many of them.

    A number of step tiles go together, 0 for all, or a number of `rows` of the last outer loop, or
    tiles of a single row. With `pads`, the padded copy of the data is made where it is needed. A
    number of cores share outer loops; starting them takes the fraction `region` of a core's time,
    and reading all data and weights `reads`. With `fetches`, the next tile's weights are
    prefetched, and data `ahead` elements before. The whole loop `beside`, one of the outer ones, is
    part of every tile.
    """
    schedule = _TileSchedule(
        of, blocks, tile, lanes, block_of, pads, cores, region, reads, fetches, ahead, beside, rows
    )
    return do(schedule.at_once if blocks.again is None else schedule.in_runs)()


@frozen
class _TileSchedule:
    """The schedule with a tile, with the parameters of `scheduled`."""

    of: Roles
    blocks: ContractionBlocks
    tile: RegisterTile
    lanes: int
    block_of: int
    pads: bool
    cores: int
    region: float
    reads: tuple[float, float]
    fetches: bool
    ahead: int
    beside: int | None
    rows: int

    def at_once(self) -> Body:
        """All terms of a tile, then the epilogue."""
        of, blocks = self.of, self.blocks
        total = yield st.block(str((blocks.total or blocks.reduction).label))
        last = yield st.block(str(blocks.epilogue.label))
        nest = yield from self.tiled(total)
        order, over = nest.around, nest.terms
        yield st.set_scope(total, 0, "local")
        sums = yield from epilogue_after(nest, blocks.tail, self.tiled, last)
        if of.runs:
            counts, ends = self.counts(), (of.lane, self.lanes)
            sums.append((yield from run_within(blocks.reduction, over[-1], counts, ends)))
        else:
            sums.append((list(over), term_extents(of), nest.lane))
        if self.pads and blocks.data is not None:  # after all that reads it
            copy = yield st.block(str(blocks.data.label))
            yield st.compute_at(copy, order[self.outside - 1])
        yield from vectors((*nest.places, nest.lane))
        yield st.decompose_reduction(total, over[0])
        for one in [one for one in sums if one[0]]:
            if self.ahead:
                yield st.annotate(one[-1], "fetch", self.ahead)
            yield from self.summed_up(one, of.depth)
        yield from self.finished(last, len(order))
        if self.cores > 1:
            yield from self.by_cores(order, self.times())

    def in_runs(self) -> Body:
        """Runs of terms in sequence, with totals kept."""
        ends = self.of.lane, self.lanes
        merged = self.outside if self.pads else 0
        last, nests, sums = yield from run_by_run(
            self.blocks, self.tiled, self.counts(), ends, merged
        )
        yield from self.summed_up(sums, prod(sums[1]))
        yield from self.finished(last, len(nests[-1]))
        if self.cores > 1:
            for order in nests:
                yield from self.by_cores(order, self.times())

    def tiled(self, of_block: Handle) -> Generator[Any, Any, TileNest]:
        """Splits the loops of a block into tiles, and reorders them."""
        of, tile, beside, rows = self.of, self.tile, self.beside, self.rows
        every: tuple[Handle, ...] = yield st.loops(of_block)
        vectors, inner, lane = yield st.split(every[of.lane], (None, tile.vectors, self.lanes))
        many = [inner]
        ahead = [vectors]
        step: list[Handle] = []
        behind: list[Handle] = []
        first: list[Handle] = []
        if of.steps is not None:
            outer, inner = yield st.split(every[of.steps], (None, tile.steps))
            if self.block_of:
                most, outer = yield st.split(outer, (None, self.block_of))
                first = [most]
            step, behind = [inner], [outer]
        if not of.blocked:
            ahead, behind = behind, ahead
        batch = [every[at] for at in of.batch]
        around = [every[at] for at in loops_outside(of, beside)]
        if rows and not is_one_row(of):
            most, last = yield st.split(around[-1], (None, rows))
            first, around = [*around[:-1], most], [last]
        elif rows:
            most, last = yield st.split(vectors, (None, rows))
            first, behind = [most], [last]
        step = [*([] if beside is None else [every[beside]]), *step]
        over = every[len(of.extents) - len(of.terms) :]
        order = (*batch, *first, *ahead, *around, *behind)
        outside = self.outside if self.pads else 0
        if self.blocks.again is not None:
            yield st.reorder(*order[:outside], *over, *order[outside:], *step, *many, lane)
        else:
            yield st.reorder(*order, *over, *step, *many, lane)
        return TileNest(order, over, (*step, *many), lane)

    def summed_up(self, sums: Sums, depth: int) -> Body:
        """The loops over the terms of sums."""
        of, tile, lanes = self.of, self.tile, self.lanes
        terms, extents, _ = sums
        passes = _passes(of, tile, self.block_of) if self.fetches else 0
        if of.sliding:
            for term in terms:
                yield st.unroll(term)
        elif of.widened and len(terms) > 1:
            yield st.unroll(terms[-1])  # the numbers of a word
        elif passes:
            yield from _fetched(depth, extents, tile, lanes, terms, passes, lanes * of.dtype.bytes)
            if lanes * of.dtype.bytes <= BRIEF and has_rows(extents[1:]):
                rows = extents[1:], tile, terms[1:], of.near, lanes * of.dtype.bytes
                yield from written_out(*rows)
        else:
            yield from written_out(extents, tile, terms, of.near, lanes * of.dtype.bytes)

    def finished(self, last: Handle, outside: int) -> Body:
        """The loops of the result inside a tile, which has one for each part that is more than
        one."""
        of, tile = self.of, self.tile
        every: tuple[Handle, ...] = yield st.loops(last)
        inside = list(every[outside:])
        counts = self.counts()
        there = [at for at in of.result if counts.get(at, 1) > 1]
        found = dict(zip(there, inside[len(inside) - len(there) :], strict=True))
        *many, lane = yield st.split(found[of.lane], (None, self.lanes))
        steps = [found[at] for at in (of.steps,) if at in found]
        rows = [found[at] for at in (self.beside,) if at in found]
        # Where steps, not lanes, are neighbours in the result, the tile is transposed before it is
        # stored.
        turns = of.blocked and of.result[-1] == of.steps and tile.steps >= MIN_LANES
        order = [*rows, *many, lane, *steps] if turns else [*rows, *steps, *many, lane]
        if len(order) > 1:
            yield st.reorder(*order)
        yield from vectors(order)

    def by_cores(self, order: Sequence[Handle], times: Sequence[TileLoop]) -> Body:
        """Cores share loops around; where some are open, blocks of outputs."""
        if self.of.opened:
            yield from shared((order[len(self.of.batch)],))
            return
        named = [(order[at], count, left) for at, (count, left, _) in enumerate(times)]
        read = SharedReads(*self.reads, tuple([sides for _, _, sides in times]))
        yield from shared(share_of(named, self.cores, region=self.region, reads=read))

    @property
    def outside(self) -> int:
        """The number of loops outside of the padded or unpacked copy of the data: over the batch,
        or groups of tiles."""
        return len(self.of.batch) or int(self.block_of > 0)

    def times(self) -> list[TileLoop]:
        """The extent of each loop around a tile that cores may share."""
        every = loops_around(self.of, self.tile, self.lanes, self.block_of, self.beside, self.rows)
        return every[: self.outside] if self.pads and self.outside else every

    def counts(self) -> dict[int, int]:
        """How many places of each loop a tile has."""
        of, beside = self.of, self.beside
        counts = {of.lane: self.tile.vectors * self.lanes}
        if of.steps is not None:
            counts[of.steps] = self.tile.steps
        if beside is not None:
            counts[beside] = of.extents[beside]
        return counts


def _passes(of: Roles, tile: RegisterTile, block_of: int) -> int:
    """The number of iterations of the loop around the terms that reuse the weights, or 0 if no
    single loop does."""
    counts = [of.extents[at] for at in of.around]
    if of.steps is not None:
        counts.append(block_of or -(-of.extents[of.steps] // tile.steps))
    many = [count for count in counts if count > 1]
    return many[0] if len(many) == 1 and of.blocked and many[0] <= PASSES else 0


def _fetched(  # noqa: PLR0917  # as the schedule
    depth: int,
    extents: Sequence[int],
    tile: RegisterTile,
    lanes: int,
    terms: list[Handle],
    passes: int,
    vector: int,
) -> Body:
    """A loop of terms in which each pass fetches its share of the next tile's weights, in vectors
    of a given number of bytes."""
    loop, inside = terms[0], prod(extents[1:])
    # Elements of several terms form one short vector per step, which would occupy registers besides
    # the sums.
    waits = vector <= BRIEF and tile.vectors * tile.steps + tile.steps > HELD
    if inside == 1 and not waits:
        few = next((f for f in (4, 2) if extents[0] % f == 0 and f * tile.vectors <= passes + 1), 1)
        if few > 1:
            loop, inner = yield st.split(loop, (None, few))
            yield st.unroll(inner)
            inside = few
    lines = -(-inside * tile.vectors * vector // (LINE * passes))
    yield st.annotate(loop, "fetch_next", (depth * tile.vectors * lanes, passes, lines))
