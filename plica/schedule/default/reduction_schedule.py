"""The schedule of reductions along rows (`plica.schedule.default.reduction`): one loop over rows.

    for i:
        for o:                                   where a sum goes in runs
            run[u, v]  = …                       vectors, side by side
            wide[v]    = wide[v] + …
        part[u, v] = …                           vectors, side by side
        joined, few, total, then out             shorter and shorter vectors

Of short rows with one result each, four are reduced to vectors in turn; these are joined together,
by transposed registers.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.reduction import row_form
>>> x = buffer("x", (4, 100), f32)
>>> total = stage("y", (4,), lambda i: reduce("sum", (100,), lambda k: x[i, k]))
>>> machine = Machine(512, 32)
>>> row_schedule(kernel_of(row_form(stages((x,), (total,)), machine)), machine) is None
False
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from plica.ir.loop import Block, Kernel, Lit
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.machine import FEW_LANES, Machine
from plica.schedule.default.nest import in_registers, opened, summed, vectors
from plica.schedule.default.reduction import SHORT
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by, reads
from plica.schedule.default.share import pays, shared
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

LONG = 256  # the row length from which the next row can be prefetched meanwhile
ROWS_AT_HAND = 3
"""Rows that half of the second cache must hold for prefetching: the source, the result and the next
one; one more for each kept in between."""


def row_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel, or of a chain of them (`plica.schedule.default.row`).

    Everything goes into the loop over the result's rows.
    """
    flow = block_flow(kernel)
    blocks = [] if flow is None else [e for e in flow.blocks.values() if _is_part(e, flow)]
    if flow is None or not blocks:
        return None
    # a single row may be read as one vector of parts
    parts = [block for block in blocks if known(made_by(block).shape[-2]) != 1] or blocks
    run_of = {after: part for part in parts if (after := _adding(part, flow)) is not None}
    runs = list(run_of.values())
    rows_of_parts = [_spatial(part) - 2 for part in parts if part not in runs]
    around = min([*rows_of_parts, *[_spatial(block) - 1 for block in run_of]])
    before = [block for block in flow.blocks.values() if block is not flow.result]
    if not all(_spatial(block) >= around for block in flow.blocks.values()):
        return None
    if not all(_looped_terms(block, around) for block in run_of):
        return None  # of one run there is no loop to be within
    lanes = _lanes(before, parts, around)
    together = not run_of and _go_together(flow, parts, lanes, around)
    kept = [
        block for block in before
        if _spatial(block) > around and not is_reduction(block) and block not in lanes
        and not _is_near(block, machine)
    ]  # fmt: skip
    room = machine.cache(2) // 2 // (ROWS_AT_HAND + len(kept))
    work = sum(prod(known(size) or 0 for size in block.extents) for block in flow.blocks.values())
    shares = around > 0 and pays(machine, work, kernel.params)

    @do
    def schedule() -> Body:
        _, every = yield from opened(flow.result)
        rows = every[:around]
        if together:
            outer, last = yield st.split(rows[-1], (None, FEW_LANES))
            yield from _rows_together(outer, last, before, around)
            rows = (*rows[:-1], outer)
            if shares:
                yield from shared(rows)
            return
        handles: list[tuple[Block, Handle]] = []
        for each in reversed([each for each in before if each not in runs]):
            one = yield st.block(str(each.label))
            if rows:
                yield st.compute_at(one, rows[-1])
            handles.append((each, one))
            if each in run_of:  # what its runs read comes into the loop over rows after them
                yield from _run_within(one, each, run_of[each], around)
        for was, one in handles:
            there = room if was in kept else None
            yield from _within_row(one, was, around, kept=there, adds=was in run_of)
        if len(every) > around:
            lane = every[-1]
            if known(flow.result.extents[-1]) is None:
                _, lane = yield st.split(lane, (None, machine.lanes(made_by(flow.result).dtype)))
            yield st.vectorize(lane)
            yield from _fetched(lane, flow.result, room)
        if shares:
            yield from shared(rows)

    return schedule()


def _go_together(
    flow: BlockFlow, parts: Sequence[Block], lanes: Sequence[Block], around: int
) -> bool:
    """Whether a few short rows are reduced to vectors in turn, and these joined together: each row
    has a single result."""
    result = flow.result
    count = known(result.extents[around - 1]) or 0 if around else 0
    if len(parts) != 1 or _spatial(result) != around or not count or count % FEW_LANES:
        return False
    (part,) = parts
    terms = [known(n) or 0 for n, kind in zip(part.extents, part.kinds, strict=True)
             if kind == "reduce"]  # fmt: skip
    rest = [block for block in flow.blocks.values() if block not in lanes and block is not result]
    short = prod(terms) * prod([known(n) or 0 for n in made_by(part).shape[-2:]]) < LONG
    return short and len(rest) == 1 and not is_reduction(rest[0]) and _spatial(rest[0]) == around


def _rows_together(outer: Handle, last: Handle, before: Sequence[Block], around: int) -> Body:
    """Some rows, each in vectors; then the totals of all of them as one vector."""
    handles: list[tuple[Block, Handle]] = []
    for block in reversed(before):
        one = yield st.block(str(block.label))
        yield st.compute_at(one, outer)
        handles.append((block, one))
    for was, one in handles:
        yield from _within_row(one, was, around, kept=None, adds=False)
        every: tuple[Handle, ...] = yield st.loops(one)
        within = sum(known(size) != 1 for size in was.extents[around:])
        row = every[len(every) - within - 1]
        yield st.unroll(row) if within else st.vectorize(row)
    yield st.vectorize(last)


def _is_near(of: Block, machine: Machine) -> bool:
    """Whether a row is short enough for registers."""
    lanes = machine.lanes(made_by(of).dtype)
    return machine.masks and (known(of.extents[-1]) or 0) <= SHORT * lanes


def _spatial(of: Block) -> int:
    return of.kinds.count("spatial")


def _is_part(of: Block, flow: BlockFlow) -> bool:
    """Whether a block reduces parts of rows in lanes: its last axes are vectors and lanes, and its
    consumer reads the vectors in sequence."""
    if not is_reduction(of) or _spatial(of) < 2 or of is flow.result:
        return False
    buffer = made_by(of)
    loads = [e for one in flow.readers.get(buffer, ()) for e in reads(one) if e.buffer is buffer]
    return bool(loads) and known(buffer.shape[-1]) != 1 and all(
        isinstance(load.indices[-2], Lit) for load in loads
    )  # fmt: skip


def _adding(part: Block, flow: BlockFlow) -> Block | None:
    """The block that adds up partial runs, or None."""
    after = flow.readers[made_by(part)]
    return after[0] if len(after) == 1 and is_reduction(after[0]) else None


def _looped_terms(of: Block, rows: int) -> int:
    """The number of term loops: within a row, unit loops are gone."""
    both = zip(of.kinds, of.extents, strict=True)
    return sum(kind == "reduce" and (not rows or known(size) != 1) for kind, size in both)


def _run_within(wide: Handle, was: Block, run: Block, rows: int) -> Body:
    """A run where its total is added up: inside the loops over runs, around those over lanes."""
    every: tuple[Handle, ...] = yield st.loops(wide)
    terms = _looped_terms(was, rows)
    lane, over = every[-1 - terms], every[len(every) - terms :]
    yield st.reorder(*over, lane)
    one = yield from in_registers(run, over[-1])
    inside: tuple[Handle, ...] = yield st.loops(one)
    lanes = 2 if known(run.extents[-3]) != 1 else 1  # vectors side by side
    if known(run.extents[-1]) == 1:  # of one term
        yield from vectors(inside[-lanes:])
    else:
        yield from summed(one, inside[-1:], inside[-1 - lanes : -1])


def _lanes(every: Sequence[Block], parts: Sequence[Block], around: int) -> list[Block]:
    """The blocks whose elements are lanes of parts, which are joined step by step."""
    blocks = [*parts]
    for block in every:
        buffers = {made_by(one) for one in blocks}
        if _spatial(block) > around and any(load.buffer in buffers for load in reads(block)):
            blocks.append(block)
    return blocks


def _within_row(of: Handle, was: Block, outside: int, *, kept: int | None, adds: bool) -> Body:
    """The loops of a block inside the row loop, without unit loops.

    A block with its own row is `kept` in memory, if there is room for the next; all else is in
    registers. One that `adds` up runs has these inside its terms already.
    """
    long = [kind for kind, size in zip(was.kinds, was.extents, strict=True) if known(size) != 1]
    there = long[sum(known(size) != 1 for size in was.extents[:outside]) :]
    if adds:
        there.sort(key="reduce".__ne__)
    if kept is None or not there:
        yield st.set_scope(of, 0, "local")
    if not there:
        return
    every: tuple[Handle, ...] = yield st.loops(of)
    inside = every[len(every) - len(there) :]
    spatial = [handle for handle, kind in zip(inside, there, strict=True) if kind == "spatial"]
    terms = [handle for handle, kind in zip(inside, there, strict=True) if kind == "reduce"]
    if spatial and terms and not adds:
        yield st.reorder(*terms, *spatial)
    if spatial:
        yield from vectors(spatial)
    if terms:
        yield st.decompose_reduction(of, terms[0])
    if spatial and kept is not None:
        yield from _fetched(spatial[-1], was, kept)


def _fetched(of: Handle, was: Block, room: int) -> Body:
    """Prefetches the next row while a long one is processed, if there is room; otherwise it would
    evict data that is still needed."""
    length = known(was.extents[-1]) or 0
    if length >= LONG and length * made_by(was).dtype.bytes <= room:
        yield st.annotate(of, "fetch", length)
