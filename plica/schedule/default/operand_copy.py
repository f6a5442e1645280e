"""Operand copies of a contraction, vectorized: packed weights, panels, padded data, bytes.

packed[b, k, s] = w[b * 8 + s, k]      squares of elements are turned in registers
room[i, j]      = x[i, j - 1] or 0     what is filled is apart from what is read

If neighbours of a copy come from several rows (four bytes of a column form one word of an
instruction), vectors go along these, and the places in the copy are unrolled.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Final

from plica.core import Term, free_vars
from plica.ir.loop import Block, Store, scalar as sc
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.coded import CODES
from plica.schedule.default.machine import LINE, QUAD, Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import is_guarded, made_by, reads, reads_rows, sizes_of, turns_rows
from plica.schedule.default.sample import is_sample, row_length
from plica.schedule.default.share import share_of, shared
from plica.schedule.do import Body
from plica.schedule.handle import Handle
from plica.schedule.primitive.decompose_padding import padded
from plica.schedule.problem import ScheduleRefused

MAX_WRITTEN_OUT: Final = 16  # vectors of an unpacked row that are written out


def copied_operand(of: Block, machine: Machine, cores: int, *, near: bool, turns: bool) -> Body:
    """A copy for a register tile: `near` where it is read, or before everything else, shared by the
    given number of cores. One that `turns` rows goes along those of its source."""
    if is_sample(of):
        yield from made_ready(of, shares=cores > 1)
        return
    copy, every = yield from opened(of)
    apart = cores > 1 and not near
    counts = [known(size) or 1 for size in of.extents] if apart else [1] * len(every)
    sizes = dict(zip(every, counts, strict=True))
    own = [] if near or apart else [*zip(every, of.vars, strict=True)]
    guarding = [loop for loop, var in own if var in _guard_vars(of)]
    if turns and len(every) > 2 and reads_rows(of):  # a row of what is read, then the next
        *outer, blocks, row, lane = every
        yield st.reorder(row, blocks)
        every = (*outer, row, blocks, lane)
    if near and is_guarded(of):
        with suppress(ScheduleRefused):  # rows in strides are copied under a guard
            yield from filled_before(copy, every[-1])
    around = [loop for loop in guarding if loop is not every[-1]]
    transposes = turns and turns_rows(of)
    if transposes:
        for loop in around:
            yield st.annotate(loop, "cut_choices", True)
    else:
        yield from rows_in_vectors(of, every[-1], machine, *around)
    if apart:
        named = [(loop, sizes[loop], is_guarded(of)) for loop in every]
        once = machine.rates.region * machine.lanes(made_by(of).dtype) / prod(counts)
        around_tiles = named[: -2 if transposes else -1]
        yield from shared(share_of(around_tiles, machine.cores, region=once))
    if transposes:
        yield from transposed(copy, *every[-2:])


def is_unpacked(of: Block) -> bool:
    """Whether a copy unpacks the numbers of a weight."""
    return not is_guarded(of) and any(load.buffer.dtype in CODES for load in reads(of))


def unpacked_panel(of: Block) -> Body:
    """Rows of a weight in vectors; those of a block are written out, because they share scales."""
    _, every = yield from opened(of)
    sizes, count = sizes_of(of)[2:-1], 1
    for loop, size in reversed([*zip(every[len(every) - 1 - len(sizes) : -1], sizes, strict=True)]):
        if (count := count * size) <= MAX_WRITTEN_OUT:
            yield st.unroll(loop)
    yield st.vectorize(every[-1])


def transposed(copy: Handle, rows: Handle, lanes: Handle) -> Body:
    """A copy in squares that registers transpose, or in vectors that are gathered."""
    try:
        yield st.transpose_tile(copy, rows, lanes)
    except ScheduleRefused:  # another condition for each row
        yield st.vectorize(lanes)


def _guard_vars(of: Block) -> frozenset[Term]:
    """What it depends on whether a copy reads or fills."""
    match of.body:
        case Store(_, _, sc.Select(condition)):
            return frozenset(free_vars(condition))
        case _:
            return frozenset()


def made_ready(of: Block, *, shares: bool) -> Body:
    """A copy as a whole, before everything else."""
    _, every = yield from opened(of)
    *lines, column = every
    length = row_length(of.body.value) if isinstance(of.body, Store) else None
    if length is not None:
        row, column = yield st.split(column, (None, length))
        lines.append(row)
    yield st.vectorize(column)
    if shares and lines:
        yield from shared(lines[:1])


def rows_in_vectors(of: Block, row: Handle, machine: Machine, *around: Handle) -> Body:
    """Copies rows in vectors; without partial reads, the inside of a row and its fill are separate,
    and so are iterations of loops `around` that contain both."""
    yield st.vectorize(row)
    if is_guarded(of) and not machine.masks:
        for loop in (*around, row):
            yield st.annotate(loop, "cut_choices", True)


def filled_before(copy: Handle, loop: Handle) -> Body:
    """Fills the border of a copy before, from a loop on, in vectors."""
    fill = yield st.decompose_padding(copy, loop)
    filled: tuple[Handle, ...] = yield st.loops(fill)
    yield st.vectorize(filled[-1])


# --- bytes ----------------------------------------------------------------------------------------


def widened_sides(of: Block) -> tuple[sc.Load, sc.Load] | None:
    """What a block multiplies once it is widened, to add it up; None where it does other things."""
    match of.body:
        case Store(
            _, _,
            sc.Add(
                sc.Load(), sc.Mul(sc.Cast(sc.Load() as left, _), sc.Cast(sc.Load() as right, _))
            ),
        ):  # fmt: skip
            return left, right
        case _:
            return None


def in_parts(of: Block, *, shares: bool) -> Body:
    """Neighbours of a row are copied from several rows at once, as vectors where these are rows; a
    border is filled before."""
    copy, every = yield from opened(of)
    if any(read.indices[-1:] == of.vars[-1:] for read in reads(of)):
        yield from in_rows(of, copy, every)
        if shares:
            yield from shared(every[:-1])
        return
    if _has_border(of):
        yield from filled_before(copy, every[-1])
    yield st.unroll(every[-1])
    if _reads_rows(of):
        yield st.vectorize(every[-2])
    if shares:
        yield from shared(every[:-2] or every[:1])


def in_rows(of: Block, copy: Handle, every: tuple[Handle, ...]) -> Body:
    """A copy along rows is vectorized; its border is filled before."""
    if padded(of) is not None:
        yield from filled_before(copy, every[-1])
    yield st.vectorize(every[-1])


def _reads_rows(of: Block) -> bool:
    """Whether neighbours of a copy come from several rows, along its second-last axis."""
    along = [free_vars(read.indices[-1]) for read in reads(of) if read.indices]
    return all(of.vars[-2] in terms and of.vars[-1] not in terms for terms in along)


def _has_border(of: Block) -> bool:
    """Whether some places are outside, all parts of a lane where one is, and hold a number there.

    A zero point that is given is no number yet: such a border is copied under a guard.
    """
    found = padded(of)
    return found is not None and of.vars[-1] not in free_vars(found[0])


def _line_by_line(of: Block, every: tuple[Handle, ...]) -> Body:
    """Vectors that lie side by side in rows that are read are packed one after another, a line of
    a cache of them: else it is fetched again for each."""
    rows = [read for read in reads(of) if read.indices]
    beside = {var for row in rows for var in free_vars(row.indices[-1])} - {of.vars[-2]}
    found = [at for at, var in enumerate(of.vars[:-2]) if {var} == beside]
    widest = max([row.buffer.dtype.bytes for row in rows], default=0)
    several = LINE // max(1, (known(of.extents[-2]) or 0) * widest)
    inner: tuple[Handle, ...] = every[:-2]
    if found and several > 1 and (vectors := known(of.extents[found[0]]) or 0) > 1:
        outer, beside_it = yield st.split(every[found[0]], (None, min(several, vectors)))
        rest = every[found[0] + 1 : -2]
        inner = (*every[: found[0]], outer, *rest, beside_it)
        if rest:
            yield st.reorder(*inner)
    if is_guarded(of):  # what is outside is at the ends alone
        for handle in inner:
            yield st.annotate(handle, "cut_choices", True)


def in_vectors(of: Block, lanes: int | None = None) -> Body:
    """Vectorizes the innermost loop of a stage that is computed as a whole.

    If given, the number of lanes that are contiguous in the source.
    """
    if all(kind == "spatial" for kind in of.kinds):
        _, every = yield from opened(of)
        if len(every) > 1 and (known(of.extents[-1]) or 0) <= QUAD and _reads_rows(of):
            yield st.unroll(every[-1])
            yield st.vectorize(every[-2])
            yield from _line_by_line(of, every)
            return
        if every and lanes is not None and (known(of.extents[-1]) or 0) > lanes:
            every = yield st.split(every[-1], (None, lanes))
        if every:
            yield st.vectorize(every[-1])
