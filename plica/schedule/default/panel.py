"""Panels: a contraction whose data is copied, columns at a time, to where it is read in order.

    for groups of columns:
        panel[t, k, q] = data[k, (group + t) * tile + q]       near, line after line
        for tiles of outputs, tiles of columns:
            sum[tile] = 0                                      registers
            for k: sum[tile] += panel[t, k] * weight[k]        vectors x single elements
            out[tile] = f(sum[tile])                           whole vectors, as they lie in memory

Rows of wide data lie pages apart, so that reading a few columns of each waits for memory; a panel
is read many times and waits once.  Lanes are neighbours of the result, so nothing is turned.

Of two matrices that are both inputs the right one is the data, and the left one the weight: its
rows are turned as they are packed, and tiles are whole, with zeros where there is no row or column.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (8, 64), f32), buffer("w", (16, 8), f32)
>>> dense = stage("y", (16, 64), lambda o, p: reduce("sum", (8,), lambda k: x[k, p] * w[o, k]))
>>> made = paneled(contraction(joined((x, w), (dense,))), Panel(RegisterTile(2, 8), 16))
>>> for line in str(made).splitlines()[:2]:
...     print(line)
packed[b < 2, k < 8, s < 8] = w[b * 8 + s, k]
panel[t < 2, a < 8, q < 32] = x[a, t * 32 + q]
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from math import prod
from typing import Any

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages
from plica.ir.loop.stages import stages as joined
from plica.ir.loop.statement import Block, Kernel, Store
from plica.ir.type.dim import known
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.form import elements, names_of, packed, packer
from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import shared
from plica.schedule.default.role import (
    contraction_blocks,
    is_guarded,
    made_by,
    reads_rows,
    turns_rows,
)
from plica.schedule.default.run_schedule import (
    TileNest,
    epilogue_after,
    run_within,
    terms_of,
    written_out,
)
from plica.schedule.default.sample import is_sample, row_length
from plica.schedule.default.share import pays, share_of
from plica.schedule.default.step import (
    annotate,
    block,
    compute_at,
    decompose_padding,
    decompose_reduction,
    loops,
    reorder,
    set_scope,
    split,
    unroll,
    vectorize,
)
from plica.schedule.default.summed import summed
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.problem import ScheduleRefused


@frozen
class Panel:
    """A tile of sums, the lanes of a vector, how many tiles of columns are copied at once, and how
    many tiles there are in all: 0 for no more than it takes."""

    tile: RegisterTile
    lanes: int
    group: int = 1
    tiles: int = 0

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self.tile.vectors * self.lanes


def has_panels(of: Contraction) -> bool:
    """Whether the last axis is that of the columns of the data, and there are outputs to tile."""
    if of.weight is None or of.guarded or not of.axes or not of.n:
        return False
    row = of.axes[-1]
    places = of.data.indices
    return (
        row in of.m
        and places[-1] is row
        and all(row not in free_vars(each) for each in places[:-1])
        and of.sizes[row] == known(of.data.buffer.shape[-1])
    )


def paneled(
    of: Contraction, panel: Panel, before: tuple[Each, ...] = (), *, copied: bool = False
) -> Stages:
    """The stages `packed`, `panel`, `sum` and `out`.

    Stages `before` make the data, where it is no input.  All columns are `copied` before all else,
    or those of each group where they are read.
    """
    names = names_of(of)
    row, output = of.axes[-1], of.n[-1]
    width, steps = panel.columns, panel.tile.steps
    count = (panel.tiles or -(-of.sizes[row] // width)) * width
    sizes = {**of.sizes, row: count, output: -(-of.sizes[output] // steps) * steps}
    copy, data = _panel(of, sizes, width, names)
    assert of.weight is not None
    outer, inner = names.var("b"), names.var("s")
    there = packed(of, output, (outer, inner), steps, names.name("packed"))
    weight = substitute(there, {outer: output // steps, inner: output % steps})
    stages = [*before, packer(of.weight, output, (outer, inner), steps, there)]
    apart = [a for a in of.axes if a is not row and a is not output]
    axes = (*apart, output, row)
    total, element = summed(of, axes, sizes, data, weight, names)

    def read(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer is of.reduced:
            return element
        return node

    value = map_bottom_up(read, of.value)
    shape = tuple([sc.index(of.sizes[each]) for each in of.axes])
    out = sc.Buffer(names.name("out"), shape, sc.dtype_of(value))
    scratch = tuple([each.out for each in (*stages, *([copy] if copied else []))])
    return joined(of.inputs, [*stages, copy, *total, Each(out, of.axes, value)], (*scratch, out))


def _panel(
    of: Contraction, sizes: dict[sc.ScalarVar, int], width: int, names: Names
) -> tuple[Each, sc.Load]:
    """The stage that copies columns, and what is read of it."""
    row = of.axes[-1]
    mine = free_vars(of.data)
    around = [a for a in of.axes if a in mine and a is not row]
    terms = [each for each in of.k if each in mine]
    tile, column = names.var("t"), names.var("q")
    place = tile * width + column
    value: sc.Scalar = _at(of.data, row, place)
    if sizes[row] > of.sizes[row]:
        value = sc.Select(sc.Lt(place, sc.index(of.sizes[row])), value, of.fill)
    own = {each: names.var("a") for each in (*around, *terms)}
    value = substitute(value, own)
    shape = [*[sizes[a] for a in around], sizes[row] // width, *[sizes[a] for a in terms], width]
    room = sc.Buffer(names.name("panel"), tuple([sc.index(n) for n in shape]), of.data.buffer.dtype)
    axes = (*[own[a] for a in around], tile, *[own[a] for a in terms], column)
    return Each(room, axes, value), sc.Load(room, (*around, row // width, *terms, row % width))


def _at(of: sc.Load, var: sc.ScalarVar, place: sc.Scalar) -> sc.Scalar:
    return substitute(of, {var: place})


def panel_schedule(kernel: Kernel, panel: Panel, machine: Machine) -> Do:
    """The schedule: rows of the result are written in order, as far as columns of a group go."""
    blocks = contraction_blocks(kernel, runs=True)
    assert blocks is not None  # it has panels
    sums, columns = blocks.reduction, blocks.data
    whole = columns is None or made_by(columns) in kernel.params
    shares = pays(machine, prod(_extents(sums)), kernel.params)

    runs, depth = len(terms_of(blocks.total)), terms_of(sums)
    spatial = len(sums.kinds) - runs - len(depth)

    def tiled(of: Handle) -> Generator[Any, Any, TileNest]:
        every: tuple[Handle, ...] = yield loops(of)
        *around, output, row = every[:spatial]
        over = every[spatial:]
        tiles, step = yield split(output, (None, panel.tile.steps))
        group, column, vector, lane = yield split(
            row, (None, panel.group, panel.tile.vectors, panel.lanes)
        )
        yield reorder(*around, group, tiles, column, *over, step, vector, lane)
        return TileNest((*around, group, tiles, column), over, (step, vector), lane)

    def schedule() -> Body:
        total = yield block(str((blocks.total or sums).label))
        last = yield block(str(blocks.epilogue.label))
        copy = (yield block(str(columns.label))) if columns is not None and not whole else None
        nest = yield from tiled(total)
        order, over = nest.around, nest.terms
        *around, group, _, _ = order
        yield set_scope(total, 0, "local")
        steps = yield from epilogue_after(nest, blocks.tail, tiled, last)
        if runs:
            counts = {spatial - 2: panel.tile.steps, spatial - 1: panel.columns}
            ends = (spatial - 1, panel.lanes)
            steps.append((yield from run_within(sums, over[-1], counts, ends)))
        else:
            steps.append((list(over), depth))
        if copy is not None:
            yield compute_at(copy, group)
        start = yield decompose_reduction(total, over[0])
        for place in nest.places:
            yield unroll(place)
        yield vectorize(nest.lane)
        for terms, extents in [each for each in steps if each[0]]:
            yield from written_out(extents, panel.tile, terms)
        begun: tuple[Handle, ...] = yield loops(start)
        for place in begun[len(order) : -1]:
            yield unroll(place)
        yield vectorize(begun[-1])
        yield from _finished(panel, last, len(order))
        cores = machine.cores if shares else 1
        if columns is not None and copy is not None:
            yield from _copied(columns, copy, len(around) + 1, machine)
        elif columns is not None:
            yield from _all_copied(columns, len(depth), panel, machine, cores)
        if blocks.source is not None:
            yield from made_ready(blocks.source, shares=shares)
        if blocks.weight is not None:
            yield from copied_operand(blocks.weight, machine, cores, near=False, turns=True)
        if shares:
            yield from shared([*around, group])

    return do(schedule)()


def _extents(of: Block) -> list[int]:
    return [known(each) or 1 for each in of.extents]


def _finished(panel: Panel, last: Handle, outside: int) -> Body:
    every: tuple[Handle, ...] = yield loops(last)
    *steps, row = every[outside:]
    vector, lane = yield split(row, (None, panel.lanes))
    for each in (*steps, vector):
        yield unroll(each)
    yield vectorize(lane)


def _copied(of: Block, copy: Handle, outside: int, machine: Machine) -> Body:
    """Columns of a row are copied together, then those of the next."""
    every: tuple[Handle, ...] = yield loops(copy)
    tile, *terms, column = every[outside:]
    if terms:
        yield reorder(*terms, tile)
    yield from rows_in_vectors(of, column, machine, tile)


def _all_copied(of: Block, terms: int, panel: Panel, machine: Machine, cores: int) -> Body:
    """The same for all columns, those of a group together: tiles may be so far apart that lines of
    all of them would be in each other's place."""
    copy = yield block(str(of.label))
    every: tuple[Handle, ...] = yield loops(copy)
    *around, tile = every[: -terms - 1]
    *over, column = every[-terms - 1 :]
    groups, tile = yield split(tile, (None, panel.group))
    yield reorder(*around, groups, *over, tile, column)
    yield from rows_in_vectors(of, column, machine, tile)
    if cores > 1:
        yield from shared([*around, groups])


WIDE = 256
"""Columns that are copied at once, at most: by then rows are read as fast as they can be."""


EACH = 4
"""Groups for each core, at least, so that all of them end at about the same time."""


EMPTY = 1 / 64
"""Tiles without a column, of all: so few are worth groups that all have as many tiles."""


def panel_room(machine: Machine, weights: int, *, whole: bool) -> int:
    """Bytes of the panels of a group, at most, beside weights of so many bytes: those that do not
    stay in a cache come again for each group.  Panels that are copied as a `whole` are on no
    stack."""
    if whole:
        return machine.cache(2) // 2
    return machine.near if weights > machine.cache(2) // 2 else machine.panel


def group_of(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    """How many of so many tiles, each with a panel of so many bytes, go together in some room."""
    most = _most_tiles(tiles, panel, width, machine, room)
    return max(each for each in range(1, most + 1) if tiles % each == 0)


def tiles_in_groups(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    """So many tiles, or a few more that are empty, of which longer groups can be made.

    >>> near = Machine(512, 32, (48 * 1024, 2048 * 1024))
    >>> [tiles_in_groups(tiles, 24 * 1024, 8, near, near.near) for tiles in (167, 37)]
    [168, 37]
    """
    most = _most_tiles(tiles, panel, width, machine, room)
    for group in range(most, 1, -1):
        count = -(-tiles // group) * group
        if count - tiles <= EMPTY * tiles:
            return count
    return tiles


def _most_tiles(tiles: int, panel: int, width: int, machine: Machine, room: int) -> int:
    most = max(1, min(room // panel, WIDE // width))
    if machine.cores > 1:
        most = max(1, min(most, tiles // (EACH * machine.cores)))
    return most


def panel_of(kernel: Kernel, machine: Machine) -> Panel | None:
    """What the panels of a kernel are like, None where it has none: columns of the data that are
    read one after another along the last axis of the sums, from a copy that is its own, or that was
    made before the program runs."""
    blocks = contraction_blocks(kernel, runs=True)
    if blocks is None or blocks.epilogue is not blocks.result:
        return None
    total = blocks.reduction
    row = [var for var, kind in zip(total.vars, total.kinds, strict=True) if kind == "spatial"][-1:]
    if not isinstance(total.body, Store):
        return None
    match total.body.value:
        case sc.Add(
            _, sc.Mul(sc.Load(copied, (*_, sc.FloorMod(near, sc.Lit(wide)))), sc.Load() as weights)
        ) if [near] == row:
            packed = weights.buffer
        case _:
            return None
    shape = [known(size) or 1 for size in copied.shape]
    lanes = machine.lanes(packed.dtype)
    whole = copied in kernel.params
    if blocks.data is None and not whole:
        return None
    if whole and not (_is_packed(weights) and wide == shape[-1] and wide % lanes == 0):
        return None
    steps = known(packed.shape[-1]) or 1
    terms = total.kinds.count("reduce")
    width, tiles = shape[-1], shape[-2 - terms]
    size = packed.dtype.bytes
    bytes_ = prod(shape[-1 - terms :]) * size
    room = panel_room(machine, elements(packed) * size, whole=whole)
    group = group_of(tiles, bytes_, width, machine, room)
    return Panel(RegisterTile(width // lanes, steps), lanes, group)


def _is_packed(of: sc.Load) -> bool:
    """Whether what is read lies in blocks of its last axis, as many as are read together."""
    match of.indices[-1]:
        case sc.FloorMod(_, sc.Lit(steps)):
            return steps == known(of.buffer.shape[-1])
        case _:
            return False


# --- copies ---------------------------------------------------------------------------------------


def copied_operand(of: Block, machine: Machine, cores: int, *, near: bool, turns: bool) -> Body:
    """A copy for a tile of registers: `near` where it is read, or before all else, shared by so
    many cores.  One that `turns` rows goes along those of what is read."""
    if is_sample(of):
        yield from made_ready(of, shares=cores > 1)
        return
    copy = yield block(str(of.label))
    every: tuple[Handle, ...] = yield loops(copy)
    apart = cores > 1 and not near
    counts = [known(size) or 1 for size in of.extents] if apart else [1] * len(every)
    sizes = dict(zip(every, counts, strict=True))
    own = [] if near or apart else [*zip(every, of.vars, strict=True)]
    guarding = [loop for loop, var in own if var in _guard_vars(of)]
    if turns and len(every) == 3 and reads_rows(of):
        yield reorder(every[1], every[0])
        every = (every[1], every[0], every[2])
    if near and is_guarded(of):
        with suppress(ScheduleRefused):  # rows in strides are copied under a guard
            fill = yield decompose_padding(copy, every[-1])
            filled: tuple[Handle, ...] = yield loops(fill)
            yield vectorize(filled[-1])
    around = [loop for loop in guarding if loop is not every[-1]]
    if turns and turns_rows(of):
        yield annotate(every[-2], "turn", True)
        yield vectorize(every[-1])
        for loop in around:
            yield annotate(loop, "cut_choices", True)
    else:
        yield from rows_in_vectors(of, every[-1], machine, *around)
    if apart:
        named = [(loop, sizes[loop], is_guarded(of)) for loop in every]
        once = machine.rates.region * machine.lanes(made_by(of).dtype) / prod(counts)
        yield from shared(share_of(named[:-1], machine.cores, region=once))


def _guard_vars(of: Block) -> frozenset[Term]:
    """What it depends on whether a copy reads or fills."""
    match of.body:
        case Store(_, _, sc.Select(condition)):
            return frozenset(free_vars(condition))
        case _:
            return frozenset()


def made_ready(of: Block, *, shares: bool) -> Body:
    """What is copied as a whole before all else."""
    copy = yield block(str(of.label))
    every: tuple[Handle, ...] = yield loops(copy)
    *lines, column = every
    length = row_length(of.body.value) if isinstance(of.body, Store) else None
    if length is not None:
        row, column = yield split(column, (None, length))
        lines.append(row)
    yield vectorize(column)
    if shares and lines:
        yield from shared(lines[:1])


def rows_in_vectors(of: Block, row: Handle, machine: Machine, *around: Handle) -> Body:
    """Rows are copied in vectors; where these are not read in part, what is inside a row and what
    is filled are apart, and so are iterations of loops `around` that have both."""
    yield vectorize(row)
    if is_guarded(of) and not machine.masks:
        for loop in (*around, row):
            yield annotate(loop, "cut_choices", True)
