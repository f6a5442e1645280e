"""The template of bilinear forms: blocks of tiles are transformed, multiplied and transformed back.

    for blocks of rows of tiles, or of parts of a row:
        padded    squares of elements are transposed in registers
        data      tile by tile; its columns are in registers until its rows are done
        product   register tiles of a few tiles and vectors of outputs, for each place of a tile
        for strips of tiles, vectors of outputs:
            image     tile by tile, in registers as above
            out       the strip, transposed

How many tiles a block and a register tile have, and what cores share, is decided by a plan
(`plica.schedule.default.winograd_plan`).

>>> from plica.ir.loop.stage import Each
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.winograd import conv_winograd
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule import trace_of
>>> from plica.schedule.default.bilinear import bilinear_form
>>> from plica.schedule.form import Facts
>>> from plica.schedule.hoist import hoist
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> conv, machine = Each(buffer("y", of.shape, f32), of.axes, of.body), Machine(512, 32)
>>> form = bilinear_form(stages((x, w), (conv,)), Facts((False, True)), machine)
>>> kernel = kernel_of(hoist(form, (False, True)).rest)
>>> len(trace_of(bilinear_schedule(kernel, machine), kernel).steps) > 50
True
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from math import isqrt
from typing import Any, Final, TypeAlias

from attrs import frozen

from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import Block, Kernel
from plica.ir.type.dim import known, polynomial
from plica.schedule import primitive as st
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.operand_copy import transposed
from plica.schedule.default.role import block_flow, is_reduction, made_by, reads
from plica.schedule.default.share import shared
from plica.schedule.default.winograd_plan import TileExtents, WinogradPlan, collides, plans
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

LaneNest: TypeAlias = tuple[tuple[Handle, ...], Handle, Handle | None]
"""Loops that are to be unrolled, one inside that is to be a vector, and rows of a transform inside
of that, which are stores that follow one another."""

Nests: TypeAlias = Generator[Any, Any, Sequence[LaneNest]]
"""A part of a do-block, and the loops whose kinds are said last."""

AXES: Final = (4, 5, 4, 5, 5, 4, 4)
"""How many axes the blocks of a bilinear form have; a sum counts among those of the product."""


def bilinear_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a bilinear form by the plan that is reckoned to take the least, None for
    other kernels."""
    return next((schedule for _, schedule in planned_schedules(kernel, machine)), None)


def planned_schedules(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Do]]:
    """The schedules of a bilinear form by all plans, the best of each block before the second best
    of any; named by rows and columns of tiles, the register tile, and who shares them."""
    if (blocks := _blocks_of(kernel)) is None:
        return
    if (extents := _extents_of(blocks)) is None:
        return
    nth: dict[tuple[int, int, int], int] = {}
    ordered: list[tuple[int, WinogradPlan]] = []
    for plan in plans(extents, machine):
        around = (plan.rows, plan.columns, plan.teams)
        nth[around] = nth.get(around, -1) + 1
        ordered.append((nth[around], plan))
    for _, plan in sorted(ordered, key=lambda each: each[0]):
        name = f"{plan.rows}x{plan.columns}-{plan.tile.vectors}x{plan.tile.steps}-{plan.teams}"
        yield name, do(_BilinearSchedule(blocks, extents, plan, machine).body)()


@frozen(eq=False)
class BilinearBlocks:
    """The blocks of a bilinear form, in the order in which each reads the one before it."""

    padded: Block
    columns: Block
    data: Block
    product: Block
    half: Block
    image: Block
    out: Block


def _blocks_of(kernel: Kernel) -> BilinearBlocks | None:
    """The blocks of a bilinear form, or None; recognised by dataflow and extents (`_extents_of`),
    never by names."""
    flow = block_flow(kernel)
    if flow is None or len(flow.blocks) != len(AXES):
        return None
    every = tuple(flow.blocks.values())
    blocks = BilinearBlocks(*every)
    if [block for block in every if is_reduction(block)] != [blocks.product]:
        return None
    for one, two in itertools.pairwise(every):
        if made_by(one) not in [load.buffer for load in reads(two)]:
            return None
    axes = [len(block.vars) for block in every]
    return blocks if tuple(axes) == AXES else None


def _extents_of(of: BilinearBlocks) -> TileExtents | None:
    """The extents of a bilinear form, or None."""
    product, half, image = (
        [known(term) or 0 for term in stage.extents] for stage in (of.product, of.half, of.image)
    )
    _, places, tiles, outputs, channels = product
    _, high, wide, _ = image
    span, size = isqrt(places), half[1]
    if not size or span**2 != places or high // size * (wide // size) != tiles or not tiles:
        return None
    rows_and_columns = high // size, wide // size
    dtype = made_by(of.product).dtype
    return TileExtents(dtype, span, size, channels, outputs, rows_and_columns)


@frozen(eq=False)
class _BilinearSchedule:
    """The schedule of a bilinear form by a plan."""

    of: BilinearBlocks
    extents: TileExtents
    plan: WinogradPlan
    machine: Machine

    @property
    def count(self) -> int:
        """Tiles of a block."""
        return self.plan.rows * self.plan.columns

    @property
    def cores_share_stages(self) -> bool:
        """Whether cores share each stage of a block, because there are fewer blocks than cores."""
        return self.plan.shares and self.plan.teams == 1

    def body(self) -> Body:
        """All stages, from the last to the first: each is placed at its reader."""
        plan, (down, across), size = self.plan, self.extents.tiles, self.extents.size
        out = yield st.block(str(self.of.out.label))
        high, _ = (known(extent) or 0 for extent in self.of.out.extents[-2:])
        n, o, h, w = yield st.loops(out)
        counts = down // plan.rows, plan.rows
        (block_row, tile_row), h = yield from tiled(h, counts, size, ragged=high % size > 0)
        # All tiles of the grid, including those without results: blocks compute what is read.
        w, column = yield st.split(w, (across, size))
        part = None
        if across > plan.columns:
            part, w = yield st.split(w, (None, plan.columns))
        strip, tile = yield st.overlap_split(w, self.strip // size)
        w = yield st.fuse(tile, column)
        vectors, lane = yield st.split(o, (None, plan.outer))
        blocks = [each for each in (n, block_row, part) if each is not None]
        # Cores share the first of those: strips overlap, so that they would write the same.
        strips = (vectors, strip) if tile_row is None else (tile_row, strip, vectors)
        yield st.reorder(*blocks, *strips, h, lane, w)
        finished = yield from self.finished(strips[-1], len(blocks) + len(strips))
        total, product = yield from self.multiplied(blocks[-1], len(blocks))
        transformed = yield from self.transformed(blocks[-1], len(blocks))
        padded = yield st.block(str(self.of.padded.label))
        column, copied = yield from self.copied(padded, blocks[-1] if plan.copies_blocks else n)
        if plan.teams > 1:  # while each buffer of a block has one writer
            yield from shared(blocks[1:])
            blocks[1:] = blocks[1:2]  # they are one loop now
        yield from self.transposed(padded, column, copied)
        # Nothing runs at once until here: each step asks less.
        yield from self.summed(total, len(blocks) + 3)
        for nest in (((lane,), w, None), *finished, product, *transformed):
            yield from in_lanes(nest)
        if self.cores_share_stages:
            yield from shared(strips[:1])

    @property
    def strip(self) -> int:
        """Columns of the result that go together, those of some tiles: a vector at most.  The last
        strip begins in the one before it."""
        return self.plan.strip(self.extents.size) * self.extents.size

    def finished(self, vectors: Handle, depth: int) -> Nests:
        """The results of a strip, which is transposed where something is done to each."""
        size, outer = self.extents.size, self.plan.outer
        image = yield st.block(str(self.of.image.label))
        half = yield st.block(str(self.of.half.label))
        yield st.compute_at(image, vectors)
        i, tiles, o = yield from inside(image, depth, (size, self.strip, outer))
        tile, j = yield st.split(tiles, (None, size))
        yield st.reorder(tile, i, o, j)
        yield st.compute_at(half, tile)
        yield st.set_scope(image, 0, "local")
        nests: list[LaneNest] = [((i,), o, j)]
        i, j, o = yield from inside(half, depth + 1, (size, self.extents.span, outer))
        yield st.reorder(j, o, i)
        yield st.set_scope(half, 0, "local")
        nests.append(((j,), o, i))
        return nests

    def multiplied(
        self, around: Handle, depth: int
    ) -> Generator[Any, Any, tuple[Handle, LaneNest]]:
        """A product of matrices for each place of a tile: its sums, and the loops of a result."""
        plan, extents = self.plan, self.extents
        vectors, steps = plan.tile.vectors, plan.tile.steps
        total = yield st.block(str(self.of.product.label))
        yield st.compute_at(total, around)
        product = yield st.cache_write(total, 0, "local")
        whole = extents.span**2, self.count, extents.outputs
        place, tiles, o = yield from inside(product, depth, whole)
        passes, step = yield st.split(tiles, (None, steps))
        groups, vector, lane = yield st.split(o, (None, vectors, plan.outer))
        yield st.reorder(place, groups, passes, step, vector, lane)
        yield st.compute_at(total, passes)
        yield from self.laid_out(product, plan.outer, extents.outputs)
        if self.cores_share_stages:
            yield from shared((place,))
        return total, ((step, vector), lane, None)

    def summed(self, total: Handle, depth: int) -> Body:
        """The sums of a register tile."""
        plan, extents = self.plan, self.extents
        tile = min(plan.tile.steps, self.count), plan.tile.vectors * plan.outer, extents.channels
        step, o, c = yield from inside(total, depth, tile)
        vector, lane = yield st.split(o, (None, plan.outer))
        unrolled = plan.unrolled(plan.tile.steps)
        factors = [each for each in (plan.inner // unrolled, unrolled) if each > 1]
        c_outer, *c_inner = yield st.split(c, (None, *factors))
        yield st.reorder(c_outer, *c_inner, step, vector, lane)
        written = c_inner[-1:] if unrolled > 1 else []
        yield from in_lanes(((*written, step, vector), lane, None))
        yield st.decompose_reduction(total, c_outer)
        often = -(-self.count // plan.tile.steps)
        if plan.fetches and often > 1:
            yield st.annotate(c_outer, "fetch_next", self.fetched(often))

    def fetched(self, passes: int) -> tuple[int, int, int]:
        """How far ahead the next weights are, in how many passes they are fetched, and how many
        lines of a cache in each iteration."""
        channels, tile, bytes_ = self.extents.channels, self.plan.tile, self.extents.dtype.bytes
        ahead = channels * tile.vectors * self.plan.outer
        lines = -(-ahead * bytes_ // LINE // passes // (channels // self.plan.inner))
        return ahead, passes, lines

    def transformed(self, around: Handle, depth: int) -> Nests:
        """The data of a block, in the order in which it is multiplied."""
        plan, span, count = self.plan, self.extents.span, self.count
        data = yield st.block(str(self.of.data.label))
        columns = yield st.block(str(self.of.columns.label))
        yield st.compute_at(data, around)
        whole = span**2, count, self.extents.channels
        place, tiles, c = yield from inside(data, depth, whole)
        steps = plan.tile.steps if count % plan.tile.steps == 0 else plan.columns
        run, tile = yield st.split(tiles, (None, steps))
        vectors, c = yield st.split(c, (None, plan.inner))
        i, j = yield st.split(place, (None, span))
        yield st.reorder(run, tile, vectors, i, c, j)
        yield st.compute_at(columns, vectors)
        nests: list[LaneNest] = [((i,), c, j)]
        i, j, c = yield from inside(columns, depth + 3, (span, span, plan.inner))
        yield st.reorder(j, c, i)
        yield st.set_scope(columns, 0, "local")
        nests.append(((j,), c, i))
        yield from self.laid_out(data, plan.inner, self.extents.channels)
        if self.cores_share_stages:
            yield from shared((run, tile))
        return nests

    def copied(self, padded: Handle, around: Handle) -> Generator[Any, Any, tuple[Handle, Handle]]:
        """The data with its border, channels last: the loops over columns and over lanes."""
        yield st.compute_at(padded, around)
        row, column, c = (yield st.loops(padded))[-3:]
        vectors, lane = yield st.split(c, (None, self.plan.inner))
        yield st.reorder(row, vectors, column, lane)
        if self.plan.shares and not self.plan.copies_blocks:
            yield from shared((row,))
        return column, lane

    def transposed(self, padded: Handle, column: Handle, lane: Handle) -> Body:
        """The fill and the copy separately, so that rows of the data are transposed."""
        lengths = self.columns_of_data()
        if lengths.count(0) == 2:
            yield from transposed(padded, column, lane)
            return
        parts: tuple[Handle, ...] = yield st.loop_partition(column, tuple(filter(None, lengths)))
        is_data = [n == 1 for n, length in enumerate(lengths) if length]
        for part, copies in zip(parts, is_data, strict=True):
            (copy,) = yield st.child_blocks(part)
            lane = (yield st.loops(copy))[-1]
            if copies:
                yield from transposed(copy, part, lane)
            else:
                yield st.vectorize(lane)

    def columns_of_data(self) -> tuple[int, int, int]:
        """How many columns lie before those of the data, how many these are, how many follow."""
        (load,) = reads(self.of.padded)
        before = -sum(
            factor for atoms, factor in polynomial(load.indices[-1]).values() if not atoms
        )
        whole, data = known(self.of.padded.extents[2]) or 0, known(load.buffer.shape[-1]) or 0
        return before, data, whole - data - before

    def laid_out(self, of: Handle, lanes: int, channels: int) -> Body:
        """The layout of data or products: places of a tile do not meet in the nearest cache."""
        yield st.transform_layout(of, "write", 0, self.passes(lanes))
        steps, bytes_ = self.plan.tile.steps, self.extents.dtype.bytes
        apart = -(-self.count // steps) * steps * channels * bytes_
        if collides(apart, self.extents.span**2, self.machine):
            line = LINE // bytes_
            yield st.storage_align(of, 0, 1, 2 * line, line)

    def passes(self, lanes: int) -> IndexMap:
        """The layout of data and products: those of a pass lie together, on few pages."""
        steps = self.plan.tile.steps

        def places(n: Scalar, p: Scalar, tile: Scalar, c: Scalar) -> tuple[Scalar, ...]:
            return n, p, tile // steps, c // lanes, tile % steps, c % lanes

        return index_map(places)


def tiled(
    loop: Handle, counts: tuple[int, int], size: int, *, ragged: bool
) -> Generator[Any, Any, tuple[tuple[Handle | None, Handle | None], Handle]]:
    """Loops over blocks, over their contents, and one of a given number of places; unit loops are
    omitted unless they cut a `ragged` axis."""
    outer, inner = (count > 1 for count in counts)
    inner = inner or (ragged and not outer)
    if not outer and not inner:
        return (None, None), loop
    whole = [count for count, wanted in zip(counts, (outer, inner), strict=True) if wanted]
    found = yield st.split(loop, (*whole, size))
    *around, last = found
    return (around[0] if outer else None, around[-1] if inner else None), last


def inside(
    of: Handle, depth: int, extents: Sequence[int]
) -> Generator[Any, Any, tuple[Handle, ...]]:
    """The loops of a block inside a number of others, for axes of given extents: moves drop unit
    axes."""
    every: tuple[Handle, ...] = yield st.loops(of)
    rest, handles = iter(every[depth:]), list[Handle]()
    for extent in extents:
        handles.append((yield st.add_unit_loop(of)) if extent == 1 else next(rest))
    return tuple(handles)


def in_lanes(nest: LaneNest) -> Body:
    """Loops that are unrolled, one that is a vector, and rows of a transform, which follow one
    another there, so that they share what they read and compute."""
    unrolled, lane, rows = nest
    for handle in unrolled:
        yield st.unroll(handle)
    yield st.vectorize(lane)
    if rows is not None:
        yield st.annotate(rows, "unroll_explicit", True)
