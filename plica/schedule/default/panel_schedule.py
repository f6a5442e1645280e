"""The schedule of a contraction in panels (`plica.schedule.default.panel`).

for groups of columns:
    panel = columns of the group                         in vectors, a row after the other
    for tiles of outputs, tiles of columns:
        sum[tile] = 0                                    registers
        for terms: sum[tile] += panel * weight           vectors x single elements
        out[tile] = f(sum[tile])
"""

from __future__ import annotations

from collections.abc import Generator
from math import prod
from typing import Any

from plica.ir.loop.statement import Block, Kernel
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import opened, vectors
from plica.schedule.default.operand_copy import copied_operand, made_ready, rows_in_vectors
from plica.schedule.default.panel import Panel
from plica.schedule.default.role import contraction_blocks, made_by, terms_of
from plica.schedule.default.run_schedule import TileNest, epilogue_after, run_within, written_out
from plica.schedule.default.share import pays, shared
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


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
        every: tuple[Handle, ...] = yield st.loops(of)
        *around, output, row = every[:spatial]
        over = every[spatial:]
        tiles, step = yield st.split(output, (None, panel.tile.steps))
        group, column, vector, lane = yield st.split(
            row, (None, panel.group, panel.tile.vectors, panel.lanes)
        )
        yield st.reorder(*around, group, tiles, column, *over, step, vector, lane)
        return TileNest((*around, group, tiles, column), over, (step, vector), lane)

    def schedule() -> Body:
        total = yield st.block(str((blocks.total or sums).label))
        last = yield st.block(str(blocks.epilogue.label))
        copy = (yield st.block(str(columns.label))) if columns is not None and not whole else None
        nest = yield from tiled(total)
        order, over = nest.around, nest.terms
        *around, group, _, _ = order
        yield st.set_scope(total, 0, "local")
        steps = yield from epilogue_after(nest, blocks.tail, tiled, last)
        if runs:
            counts = {spatial - 2: panel.tile.steps, spatial - 1: panel.columns}
            ends = (spatial - 1, panel.lanes)
            steps.append((yield from run_within(sums, over[-1], counts, ends)))
        else:
            steps.append((list(over), depth, nest.lane))
        if copy is not None:
            yield st.compute_at(copy, group)
        yield from vectors((*nest.places, nest.lane))
        yield st.decompose_reduction(total, over[0])
        for terms, extents, _ in [each for each in steps if each[0]]:
            yield from written_out(extents, panel.tile, terms)
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
    return [known(extent) or 1 for extent in of.extents]


def _finished(panel: Panel, last: Handle, outside: int) -> Body:
    every: tuple[Handle, ...] = yield st.loops(last)
    *steps, row = every[outside:]
    yield from vectors((*steps, *(yield st.split(row, (None, panel.lanes)))))


def _copied(of: Block, copy: Handle, outside: int, machine: Machine) -> Body:
    """Columns of a row are copied together, then those of the next."""
    every: tuple[Handle, ...] = yield st.loops(copy)
    tile, *terms, column = every[outside:]
    if terms:
        yield st.reorder(*terms, tile)
    yield from rows_in_vectors(of, column, machine, tile)


def _all_copied(of: Block, terms: int, panel: Panel, machine: Machine, cores: int) -> Body:
    """The same for all columns, those of a group together: tiles may be so far apart that lines of
    all of them would be in each other's place."""
    _, every = yield from opened(of)
    *around, tile = every[: -terms - 1]
    *over, column = every[-terms - 1 :]
    groups, tile = yield st.split(tile, (None, panel.group))
    yield st.reorder(*around, groups, *over, tile, column)
    yield from rows_in_vectors(of, column, machine, tile)
    if cores > 1:
        yield from shared([*around, groups])
