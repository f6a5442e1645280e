"""The schedule of windows over one channel (`plica.schedule.default.depthwise`).

    for n, c:
        for tiles of rows:
            for vectors of a row, the first and the last apart:
                window[tile] = 0                                   registers
                for k, l: window[tile] += x[…] * w[c, k, l]        all written out
                out[tile] = f(window[tile])

>>> cuts_rows((), 1, Machine(512, 32)), cuts_rows((), 2, Machine(512, 32))
(False, True)
>>> cuts_rows((), 1, Machine(256, 16)), cuts_rows((), 2, Machine(128, 32))
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Kernel, Store, scalar as sc
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.depthwise import (
    CHOSEN,
    FEW,
    TAPS,
    loops_over_columns,
    serial_terms,
    terms_of_place,
    window_tile,
    written_out,
)
from plica.schedule.default.form import elements, span
from plica.schedule.default.machine import MASKED, Machine
from plica.schedule.default.nest import vectors as in_vectors
from plica.schedule.default.role import contraction_blocks, made_by, reads
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def window_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel."""
    blocks = contraction_blocks(kernel)
    if blocks is None or blocks.epilogue is not blocks.result:
        return None
    if blocks.data is not None or blocks.weight is not None:
        return None  # both are read as they are given
    of, last_of = blocks.reduction, blocks.epilogue
    sizes = [known(extent) or 0 for extent in of.extents]
    around = of.kinds.count("spatial")
    taps = sizes[around:]
    found = _data(of)
    if found is None or len(last_of.vars) != around:
        return None
    data, apart = found
    # Column by column: the first term goes along rows.
    by_columns = len(taps) > 1 and of.vars[around] in free_vars(data.indices[-1])
    columns = by_columns and loops_over_columns(taps, machine)
    if (taken := written_out(taps, columns)) > TAPS:
        return None
    by_channel = data.indices[-1] is of.vars[around - 1] and len(reads(of)) > 1
    out = kernel.params[-1]
    rows = (known(out.shape[around - 2]) or 0) if apart else 1
    most = machine.lanes(made_by(of).dtype)
    width = known(out.shape[-1]) or 0
    taps_across = taps[0] if by_columns and not columns else 0
    high, lanes = window_tile(taken, rows, width, machine, most, columns, taps_across)
    if sizes[around - 1] % lanes or (apart and sizes[around - 2] % high):
        return None  # rows and columns of a window fill its tiles
    choices = [node for node in post_order(of.body) if isinstance(node, sc.Select)]
    ahead = _to_next_tile(data, of.vars[around - 2], high) if apart and not machine.masks else 0
    if elements(data.buffer) * data.buffer.dtype.bytes <= machine.cache(1):
        ahead = 0  # it is there
    shares = pays(machine, prod(sizes), kernel.params)
    # With strides, window columns are lanes of the same vectors: they are processed together, so
    # that these vectors are not kept for all rows of a tile.
    strided = terms_of_place(data.indices[-1]).get(of.vars[around - 1], 0) > 1
    together = int(strided and len(taps) > 1 and not by_columns and not machine.masks)
    spans = {**dict.fromkeys(of.vars, 1), **dict(zip(of.vars[around:], taps, strict=True))}

    def parts(axis: int, by: int) -> tuple[int, bool, int]:
        """The number of tiles along an axis, whether one of them is entirely inside, and how many
        elements the first and last read."""
        var, place = of.vars[around + axis], data.indices[axis]
        count, size = sizes[around + axis] // by, known(data.buffer.shape[axis]) or 0
        low, high = span(place, {**spans, var: by})
        steps = [at * by * terms_of_place(place).get(var, 0) for at in range(count)]
        has_middle = any(low + at >= 0 and high + at < size for at in steps)
        return count, has_middle, max(0, -low) + max(0, high + steps[-1] - size + 1)

    @do
    def schedule() -> Body:
        total = yield st.block(str(of.label))
        last = yield st.block(str(last_of.label))
        every: tuple[Handle, ...] = yield st.loops(total)
        vectors, lane = yield st.split(every[around - 1], (None, lanes))
        batch, terms = list(every[: around - 1]), every[around:]
        several = [(vectors, parts(-1, lanes))]
        tiles: list[Handle] = []
        steps: list[Handle] = []
        if apart:
            outer, inner = yield st.split(batch.pop(), (None, high))
            tiles, steps = [outer], [inner]
            of_rows = parts(-2, high)
            step = terms_of_place(data.indices[-2]).get(of.vars[around - 2], 0)
            if by_channel or of_rows[2] > CHOSEN or cuts_rows(choices, step, machine):
                several.append((outer, of_rows))
        if by_channel and batch:
            several.append((batch[-1], (sizes[around - 3], True, 0)))  # rows are no tiles
        beside = len(terms) - together
        yield st.reorder(*batch, *tiles, vectors, *terms[:beside], *steps, *terms[beside:], lane)
        yield st.set_scope(total, 0, "local")
        yield st.reverse_compute_at(last, vectors)
        yield from in_vectors((*terms[serial_terms(taps, columns) :], *steps, lane))
        yield st.decompose_reduction(total, terms[0])
        if ahead:
            yield st.annotate(lane, "fetch", ahead)
        inside: tuple[Handle, ...] = yield st.loops(last)
        *many, whole = inside[len(batch) + len(tiles) + 1 :]
        # Of the end of a row some lanes only.
        yield from in_vectors((*many, *(yield st.split(whole, (None, lanes)))))
        for each, (count, has_middle, _) in several if choices else ():
            if count > 2 and (has_middle or machine.masks or count > FEW):
                yield st.annotate(each, "cut_choices", True)
            else:
                yield st.unroll(each)
        if shares and batch:
            whole = batch[-1] if by_channel else batch[0]
            if len(batch) > 1 and not by_channel:
                whole = yield st.fuse(*batch)
            yield st.parallel(whole)

    return schedule()


def cuts_rows(choices: Sequence[sc.Select], step: int, machine: Machine) -> bool:
    """Whether tiles with rows outside the image are separate: zeros can be read for these rows,
    other values cannot. With lane masks strided rows are separate, too, because the address
    selection must be visible; and all rows if a mask needs a register of the sums."""
    if not machine.zero_rows or (machine.masks and (step > 1 or machine.vector <= MASKED)):
        return True
    return any(not _is_zero(choice.orelse) for choice in choices)


def _is_zero(of: sc.Scalar) -> bool:
    return isinstance(of, sc.Lit) and of.value == 0


def _to_next_tile(data: sc.Load, column: sc.ScalarVar, high: int) -> int:
    """The offset from a tile's rows to the same rows of the next one, for prefetching: a row has
    too few lines for hardware prefetchers."""
    *_, rows, row = data.indices
    step = terms_of_place(rows).get(column, 0)
    return high * step * (known(data.buffer.shape[-1]) or 0) if column not in free_vars(row) else 0


def _data(of: Block) -> tuple[sc.Load, bool] | None:
    """The load along the last axis of a window, and whether it slides along the one before."""
    store = of.body
    around = of.kinds.count("spatial")
    if not isinstance(store, Store) or around < 2:
        return None
    column, row = of.vars[around - 2 : around]
    loads = [
        n
        for n in post_order(store.value)
        if isinstance(n, sc.Load) and n.buffer is not store.buffer
    ]
    found = [load for load in loads if load.indices and row in free_vars(load.indices[-1])]
    if len(found) == 2 and found[0].indices[-1] is row:
        found = found[:1]  # lanes go along channels, each with a weight of its own
    if len(found) != 1:
        return None
    (data,) = found
    if any(row in free_vars(place) for place in data.indices[:-1]):
        return None
    weights = [load for load in loads if load is not data]
    shared = {
        var for var, size in zip(of.vars[:around], of.extents, strict=False)
        if known(size) != 1 and var not in free_vars(data)
    }  # fmt: skip
    if any(var in shared for weight in weights for var in free_vars(weight)):
        return None  # sums of several outputs read the same data
    still = (
        any(column in free_vars(load) for load in weights) if weights else column in data.indices
    )
    return data, column in free_vars(data) and not still
