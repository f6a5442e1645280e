"""Copies of a byte product: of its data, its weight, and its kept sums.

    for rows: fill the border                      where data has one, as a stage of its own
    for rows: copy vectors                         along a row, or from several rows at once

Plain copies are vectorized. If neighbours of a copy come from several rows (four bytes of a column
form one word of an instruction), vectors go along these, and the places in the copy are unrolled.
"""

from __future__ import annotations

from plica.core import free_vars
from plica.ir.loop.scalar import Add, Cast, Load, Mul
from plica.ir.loop.statement import Block, Store
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.machine import LINE, QUAD
from plica.schedule.default.nest import opened
from plica.schedule.default.role import is_guarded, reads
from plica.schedule.default.share import shared
from plica.schedule.do import Body
from plica.schedule.handle import Handle
from plica.schedule.primitive.decompose_padding import padded


def widened_sides(of: Block) -> tuple[Load, Load] | None:
    """What a block multiplies once it is widened, to add it up; None where it does other things."""
    match of.body:
        case Store(_, _, Add(Load(), Mul(Cast(Load() as left, _), Cast(Load() as right, _)))):
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
        fill = yield st.decompose_padding(copy, every[-1])
        filled: tuple[Handle, ...] = yield st.loops(fill)
        yield st.vectorize(filled[-1])
    yield st.unroll(every[-1])
    if _reads_rows(of):
        yield st.vectorize(every[-2])
    if shares:
        yield from shared(every[:-2] or every[:1])


def in_rows(of: Block, copy: Handle, every: tuple[Handle, ...]) -> Body:
    """A copy along rows is vectorized; its border is filled before."""
    if padded(of) is not None:
        fill = yield st.decompose_padding(copy, every[-1])
        filled: tuple[Handle, ...] = yield st.loops(fill)
        yield st.vectorize(filled[-1])
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
