"""The template of contractions: a tile of sums in registers, finished where it is made.

for …, tiles of lanes, tiles of the other axis:
    sum[tile] = 0                                  registers
    for terms: sum[tile] += data * weight          vectors x single elements
    out[tile] = f(sum[tile])

The tile and the order of tiles are chosen by `plica.schedule.default.register_tile`.  A contraction
in panels (`plica.schedule.default.panel`) has another order, and its data is copied for each group
of columns:

for groups of columns:
    panel = columns of the group                   in vectors, a row after the other
    for tiles of outputs, tiles of columns: as above

A sum in runs (`plica.schedule.default.summed`) keeps totals; the last run may be apart:

for …, tiles:
    total[tile] = 0                                f64
    for b:
        sum[tile] = 0                              registers
        for terms: sum[tile] += data * weight
        total[tile] += f64(sum[tile])
    the same for the terms of `tail`, where there is one
    out[tile] = f(total[tile] + f64(tail[tile]))

Or run by run for all tiles: a run's data and weights stay in a cache until all tiles have read
them, and totals wait in memory.  Data that is unpacked for the terms of a run goes in groups of
tiles, with these loops in each:

total[…] = 0
for b, …, tiles:
    sum[tile] = 0                                  registers
    for terms: sum[tile] += data * weight
    total[tile] += f64(sum[tile])
for …, tiles:
    whole[tile] = total[tile]                      registers
    out[tile] = f(whole[tile])
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod
from typing import Any, TypeAlias

from attrs import evolve, frozen

from plica.ir.loop.statement import Block, Kernel
from plica.ir.type import f32, known
from plica.schedule import primitive as st
from plica.schedule.default.estimate import fewest_lanes, tiles_together
from plica.schedule.default.machine import LINE, MIN_LANES, Machine
from plica.schedule.default.nest import in_registers, opened, vectors
from plica.schedule.default.operand_copy import (
    copied_operand,
    is_unpacked,
    made_ready,
    rows_in_vectors,
    unpacked_panel,
)
from plica.schedule.default.panel import panel_of
from plica.schedule.default.register_tile import (
    beside,
    data_ahead,
    has_far_weights,
    is_one_row,
    loops_around,
    loops_outside,
    operand_bytes,
    panel_tile,
    rows_together,
    term_extents,
    tile_of,
    tiles_of_panel,
)
from plica.schedule.default.role import (
    ContractionBlocks,
    Roles,
    contraction_blocks,
    made_by,
    roles,
    terms_of,
)
from plica.schedule.default.share import SharedReads, cycles, pays, read_times, share_of, shared
from plica.schedule.default.tile import RegisterTile
from plica.schedule.default.written_terms import BRIEF, HELD, has_rows, written_out
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

Nests: TypeAlias = Generator[Any, Any, list[tuple[Handle, ...]]]
"""A part of a do-block, and the loops around tiles of each nest."""

Sums: TypeAlias = tuple[list[Handle], tuple[int, ...], Handle]
"""The term loops of a sum, their extents, and the loop over lanes."""

PASSES = 16  # a tile of weights that is used more often than that need not be fetched ahead


def in_tiles(kernel: Kernel, machine: Machine) -> Do | None:
    """A contraction in tiles of registers."""
    of, blocks = roles(kernel), contraction_blocks(kernel, runs=True)
    if of is None or blocks is None:
        return None
    pad = blocks.data
    near = pad is not None and made_by(pad) not in kernel.params
    panels = near and pad is not None and not of.batch and is_unpacked(pad)
    if panels:  # steps are as far apart as rows of a panel
        of = evolve(of, apart=prod(of.extents[at] for at in of.terms) * f32.bytes)
    lanes = fewest_lanes(of.extents[of.lane], machine.lanes(of.dtype))
    work = cycles(machine, of.products, kernel.params, of.dtype)
    cores = machine.cores if pays(machine, of.products, kernel.params, of.dtype) else 1
    tile = panel_tile(of, machine, lanes) if panels else tile_of(of, machine, lanes, cores)
    tile, more = (tile, None) if panels else beside(of, tile, machine, lanes)
    reads = read_times(machine, *operand_bytes(of, blocks.reduction), work)
    kept = blocks.again is not None
    of_cores = cores if reads[0] > reads[1] else 1
    together = (
        tiles_of_panel(of, tile, machine) if panels
        else tiles_together(of, tile, lanes, machine, of_cores, kept=kept)
    )  # fmt: skip
    whole_rows = together or kept or more is not None
    rows = 0 if whole_rows else rows_together(of, blocks.reduction, tile, lanes, machine)

    def copies() -> Body:
        if pad is not None:
            copied = copied_operand(pad, machine, cores, near=near, turns=False)
            yield from unpacked_panel(pad) if panels else copied
        if blocks.weight is not None:
            yield from copied_operand(blocks.weight, machine, cores, near=False, turns=True)

    schedule = TileSchedule(
        of, blocks, tile, lanes, cores, together,
        outside=(len(of.batch) or int(together > 0)) if near else 0,
        region=machine.rates.region / work,
        reads=reads,
        near=of.near,
        vector_bytes=lanes * of.dtype.bytes,
        fetches=not rows and more is None and has_far_weights(of, machine),
        ahead=data_ahead(of, blocks.reduction, tile, lanes, machine),
        beside=more,
        rows=rows,
    )  # fmt: skip
    return do(lambda: schedule.body(copies()))()


def in_panels(kernel: Kernel, machine: Machine) -> Do | None:
    """A contraction in panels: rows of the result are written in order, as far as columns of a
    group go."""
    panel, of = panel_of(kernel, machine), roles(kernel)
    blocks = contraction_blocks(kernel, runs=True)
    if panel is None or of is None or blocks is None:
        return None
    of = evolve(of, batch=tuple(sorted([*of.batch, *of.around])), around=())
    columns, groups = blocks.data, len(of.batch) + 1  # loops down to those over groups of columns
    near = columns is not None and made_by(columns) not in kernel.params
    sizes = [known(extent) or 1 for extent in blocks.reduction.extents]
    cores = machine.cores if pays(machine, prod(sizes), kernel.params) else 1

    def copies() -> Body:
        if columns is not None and near:
            yield from _copied_columns(columns, groups, machine)
        elif columns is not None:
            yield from _all_copied(columns, len(of.terms), panel.group, machine, cores)
        if blocks.source is not None:
            yield from made_ready(blocks.source, shares=cores > 1)
        if blocks.weight is not None:
            yield from copied_operand(blocks.weight, machine, cores, near=False, turns=True)

    schedule = TileSchedule(
        of, blocks, panel.tile, panel.lanes, cores,
        outside=groups if near else 0, sharing=groups, rows=panel.group,
    )  # fmt: skip
    return do(lambda: schedule.body(copies()))()


@frozen
class TileNest:
    """The loops of a sum in tiles: those around each, terms, places of a tile, and lanes."""

    around: tuple[Handle, ...]
    terms: tuple[Handle, ...]
    places: tuple[Handle, ...]
    lane: Handle


@frozen
class TileSchedule:
    """The schedule with a tile; where the lanes are part of a loop, this many of them.

    A number of step tiles go together (`block_of`, 0 for all), or a number of `rows` of the last
    outer loop, or tiles of a single row.  The copy of the data is made where it is needed if loops
    are `outside` of it.  A number of `cores` share so many first loops (`sharing`), or if that is 0
    those that take the least: starting them takes the fraction `region` of a core's time, and
    reading all data and weights `reads`.  Terms lie so `near` one another, and vectors have so many
    bytes, which says how many terms are written out.  With `fetches`, the next tile's weights are
    prefetched, and data `ahead` elements before.  The whole loop `beside`, one of the outer ones,
    is part of every tile.
    """

    of: Roles
    blocks: ContractionBlocks
    tile: RegisterTile
    lanes: int
    cores: int
    block_of: int = 0
    outside: int = 0
    sharing: int = 0
    region: float = 0.0
    reads: tuple[float, float] = (0.0, 0.0)
    near: int = 0
    vector_bytes: int = 0
    fetches: bool = False
    ahead: int = 0
    beside: int | None = None
    rows: int = 0

    def body(self, copies: Body) -> Body:
        """All of it: runs one after another for all tiles where totals are kept."""
        nests = yield from self.at_once() if self.blocks.again is None else self.in_runs()
        yield from copies
        for order in nests if self.cores > 1 else ():
            yield from self.by_cores(order)

    def at_once(self) -> Nests:
        """All terms of a tile, then the epilogue."""
        of, blocks = self.of, self.blocks
        total = yield st.block(str((blocks.total or blocks.reduction).label))
        last = yield st.block(str(blocks.epilogue.label))
        nest = yield from self.tiled(total)
        order, over = nest.around, nest.terms
        yield st.set_scope(total, 0, "local")
        sums = yield from self.epilogue_after(nest, last)
        if of.runs:
            sums.append((yield from self.run_within(over[-1])))
        else:
            sums.append((list(over), term_extents(of), nest.lane))
        if self.outside and blocks.data is not None:  # after all that reads it
            copy = yield st.block(str(blocks.data.label))
            yield st.compute_at(copy, order[self.outside - 1])
        yield from vectors((*nest.places, nest.lane))
        yield st.decompose_reduction(total, over[0])
        for one in [one for one in sums if one[0]]:
            if self.ahead:
                yield st.annotate(one[-1], "fetch", self.ahead)
            yield from self.summed_up(one, of.depth)
        yield from self.finished(last, len(order))
        return [order]

    def epilogue_after(self, total: TileNest, last: Handle) -> Generator[Any, Any, list[Sums]]:
        """What reads the total, where a tile of it is made; before that the sum of the last run in
        the same tiles, if it is apart: gives what `run_within` does for it.

        The tail has all lanes of a tile, like the total, although the result may need fewer:
        partial sums do not stay in registers.
        """
        if (tail := self.blocks.tail) is None:
            yield st.reverse_compute_at(last, total.around[-1])
            return []
        one = yield st.block(str(tail.label))
        nest = yield from self.tiled(one)
        yield st.merge_loops(total.around[-1], nest.around[-1])
        yield st.set_scope(one, 0, "local")
        yield st.reverse_compute_at(last, total.around[-1])
        yield from vectors((*nest.places, nest.lane))
        yield st.decompose_reduction(one, nest.terms[0])
        both = zip(nest.terms, terms_of(tail), strict=True)
        long = [(loop, count) for loop, count in both if count > 1]
        return [([loop for loop, _ in long], tuple([count for _, count in long]), nest.lane)]

    def run_within(self, loop: Handle) -> Generator[Any, Any, Sums]:
        """The sum of a run in registers, at the tile's addition to the total: its term loops and
        their extents, without unit loops, and that over lanes."""
        of, counts = self.blocks.reduction, self.counts()
        long = tuple([each for each in terms_of(of) if each > 1])
        one = yield from in_registers(of, loop)
        every: tuple[Handle, ...] = yield st.loops(one)
        spatial = [at for at in sorted(counts) if counts[at] > 1]
        inside = every[len(every) - len(spatial) - len(long) :]
        found = dict(zip(spatial, inside, strict=False))
        *many, last = yield st.split(found.pop(self.of.lane), (None, self.lanes))
        rest = inside[len(spatial) :]
        yield st.reorder(*rest, *found.values(), *many, last)
        yield from vectors((*found.values(), *many, last))
        if not rest:  # of one term
            return [], (), last
        yield st.decompose_reduction(one, rest[0])
        return list(rest), long, last

    def in_runs(self) -> Nests:
        """Each run for all tiles, with totals kept.

        All runs of a group of tiles go before the next group if loops are `outside` of the copy of
        the data: then the data of a run is computed for the group.
        """
        blocks, merged = self.blocks, self.outside
        assert blocks.total is not None
        assert blocks.again is not None
        total = yield st.block(str(blocks.total.label))
        whole = yield st.block(str(blocks.again.label))
        last = yield st.block(str(blocks.epilogue.label))
        nest, back = (yield from self.tiled(total)), (yield from self.tiled(whole))
        if merged:
            yield st.merge_loops(nest.around[merged - 1], back.around[merged - 1])
        yield st.set_scope(whole, 0, "local")
        yield st.reverse_compute_at(last, back.around[-1])
        sums = yield from self.run_within(nest.around[-1])
        if merged and blocks.data is not None:
            copy = yield st.block(str(blocks.data.label))
            yield st.compute_at(copy, nest.terms[0])
        start = yield st.decompose_reduction(total, nest.terms[0])
        for handle in (*nest.places, *back.places):
            yield st.unroll(handle)
        begun: tuple[Handle, ...] = yield st.loops(start)
        for handle in (nest.lane, back.lane, begun[-1]):
            yield st.vectorize(handle)
        yield from self.summed_up(sums, prod(sums[1]))
        yield from self.finished(last, len(back.around))
        return [nest.around] if merged else [begun[: len(back.around)], nest.around, back.around]

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
        before = len(order) if self.blocks.again is None else self.outside
        yield st.reorder(*order[:before], *over, *order[before:], *step, *many, lane)
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
                yield from written_out(extents[1:], tile, terms[1:], self.near, self.vector_bytes)
        else:
            yield from written_out(extents, tile, terms, self.near, self.vector_bytes)

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

    def by_cores(self, order: Sequence[Handle]) -> Body:
        """Cores share loops around; where some are open, blocks of outputs."""
        if self.sharing or self.of.opened:
            yield from shared(order[: self.sharing] or (order[len(self.of.batch)],))
            return
        every = loops_around(self.of, self.tile, self.lanes, self.block_of, self.beside, self.rows)
        times = every[: self.outside] if self.outside else every
        named = [(order[at], count, left) for at, (count, left, _) in enumerate(times)]
        read = SharedReads(*self.reads, tuple([sides for _, _, sides in times]))
        yield from shared(share_of(named, self.cores, region=self.region, reads=read))

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


def _copied_columns(of: Block, outside: int, machine: Machine) -> Body:
    """Columns of a row are copied together, then those of the next."""
    _, every = yield from opened(of)
    tile, *terms, column = every[outside:]
    if terms:
        yield st.reorder(*terms, tile)
    yield from rows_in_vectors(of, column, machine, tile)


def _all_copied(of: Block, terms: int, group: int, machine: Machine, cores: int) -> Body:
    """The same for all columns, those of a group together: tiles may be so far apart that lines of
    all of them would be in each other's place."""
    _, every = yield from opened(of)
    *around, tile = every[: -terms - 1]
    *over, column = every[-terms - 1 :]
    groups, tile = yield st.split(tile, (None, group))
    yield st.reorder(*around, groups, *over, tile, column)
    yield from rows_in_vectors(of, column, machine, tile)
    if cores > 1:
        yield from shared([*around, groups])
