"""The template of products of many rows by panels of bytes (`plica.schedule.default.coded_digit`).

for groups of terms:
    turned, peak, unit, factor, fixed, digits, below, sums     vectors along rows of the data
for groups of columns:
    total[group, …] = 0
    for b:                                         runs of terms
        codes[group, …], scale, minimum            unpacked, vectors along the bytes
        for tiles of rows, tiles of columns:
            part[tile] = 0                         registers
            for g:
                sum[d, tile] = 0                   registers
                for q: invoke the instruction for all d, columns and vectors of rows
                part[tile] += …
            total[tile] += part[tile]
    out[…] = f(total[…])                           squares are transposed in registers
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod
from typing import Any, Final

from plica.core import free_vars
from plica.ir.loop import Block, Kernel
from plica.ir.type import i32, known
from plica.schedule import primitive as st
from plica.schedule.default.coded_digit import digit_tile
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import in_registers, opened, summed, vectors, vectors_inside
from plica.schedule.default.operand_copy import transposed, widened_sides
from plica.schedule.default.role import (
    BlockFlow,
    block_flow,
    is_reduction,
    made_by,
    reads,
    terms_of,
    turns_rows,
)
from plica.schedule.default.share import pays, shared
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

MAX_COLUMNS: Final = 64
"""Bytes of a term in a panel, at most: it stays in the nearest cache with a tile of digits."""
AROUND: Final = 4  # loops around a tile: groups of columns, runs, tiles of rows, tiles of columns
GROUPS: Final = 3  # loops around a group of the data: runs, vectors of rows, groups
RANK_OF_ONE_DIGIT: Final = 6
"""Axes of the data where a datum is one operand: runs, vectors, groups, quads, lanes, terms."""
MAX_WRITTEN_OUT: Final = 96  # dot products in the text of the innermost loop, at most


def coded_digit_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a product, None for other kernels."""
    dot, flow = machine.dot, block_flow(kernel)
    if dot is None or flow is None:
        return None
    blocks = [block for block in flow.blocks.values() if is_of_digits(block, flow, kernel)]
    if len(blocks) != 1:
        return None
    (dots,) = blocks
    (part,) = flow.readers[made_by(dots)]
    (total,) = flow.readers[made_by(part)]
    return _schedule(flow, dots, part, total, kernel, machine)


def is_of_digits(of: Block, flow: BlockFlow, kernel: Kernel) -> bool:
    """Whether a block adds products of bytes that are both made in the kernel, one near where they
    are read, and its sums are summed again."""
    sides = widened_sides(of)
    if sides is None or not all(side.buffer in flow.writer for side in sides):
        return False
    code, digit = (side.buffer for side in sides)
    after = flow.readers.get(made_by(of), ())
    if code in kernel.params or digit not in kernel.params or len(after) != 1:
        return False
    totals = flow.readers.get(made_by(after[0]), ())
    return len(totals) == 1 and all(is_reduction(block) for block in (*after, *totals))


def _schedule(  # noqa: PLR0917  # the stages of a product
    flow: BlockFlow, dots: Block, part: Block, total: Block, kernel: Kernel, machine: Machine
) -> Do:
    dot, out = machine.dot, flow.result
    assert dot is not None
    near = [block for block in flow.blocks.values() if made_by(block) not in kernel.params]
    read = {load.buffer for block in (dots, part) for load in reads(block)}
    panels = [block for block in near if made_by(block) in read and block is not dots]
    before = [block for block in near if block not in (dots, part, *panels)]
    kept = [block for block in flow.blocks.values() if block not in (*near, total, out)]
    columns, many = (known(size) or 1 for size in made_by(total).shape[:2])
    (digit,) = [load.buffer for load in reads(dots) if load.buffer in kernel.params]
    if dot.wide is not None and digit.dtype is dot.wide.weight:
        dot = dot.wide
    *_, several, _, _ = map(known, digit.shape)
    digits = several or 1 if len(digit.shape) > RANK_OF_ONE_DIGIT else 1
    v, r = digit_tile(many, columns, machine.registers, digits)
    most, tiles = MAX_COLUMNS // (r * dot.weight.bytes), columns // r
    group = max([n for n in range(1, most + 1) if tiles % n == 0], default=1)
    places = (r > 1) + (v > 1)

    @do
    def schedule() -> Body:
        adds, (column, rows, lane, run) = yield from opened(total)
        groups, tiles_, step = yield st.split(column, (None, group, r))
        outer, vector = yield st.split(rows, (None, v))
        yield st.reorder(groups, run, outer, tiles_, step, vector, lane)
        some = yield from in_registers(part, tiles_)
        every: tuple[Handle, ...] = yield st.loops(some)
        inside = every[AROUND:]
        spatial, over = inside[: places + 1], inside[places + 1 :]
        yield st.reorder(*over, *spatial)
        sums = yield from in_registers(dots, over[-1])
        yield from vectors(spatial)
        yield st.decompose_reduction(some, over[0])
        yield from _multiplied(sums, dots, AROUND + len(over), (digits, r, v), dot.intrinsic)
        yield from vectors((step, vector, lane))
        for panel in panels:
            made = yield st.block(str(panel.label))
            yield st.compute_at(made, run)
            *_, last = yield st.loops(made)
            if made_by(panel).dtype.is_integer:
                yield st.vectorize(last)
        yield st.decompose_reduction(adds, run)
        yield from _finished(out, total, groups, group * r)
        runs = yield from _made_together(before, kept)
        for each in (*before, *kept):
            yield from _of_data(each)
        if pays(machine, prod([known(n) or 1 for n in dots.extents]), kernel.params):
            yield from shared((groups,))
            yield from shared((runs,))

    return schedule()


def _multiplied(sums: Handle, of: Block, outside: int, tile: Sequence[int], intrinsic: str) -> Body:
    """Digits by codes: the instruction for each digit, column and vector of a tile."""
    every: tuple[Handle, ...] = yield st.loops(sums)
    inside = every[outside:]
    places = len([n for n in tile if n > 1])
    several, lane = inside[:places], inside[places]
    *terms, part = inside[places + 1 :]
    yield st.reorder(*terms, *several, lane, part)
    begun = yield st.decompose_reduction(sums, terms[0])
    yield from vectors_inside(begun, outside)
    yield st.tensorize(lane, intrinsic)
    for handle in several:
        yield st.unroll(handle)
    quads = next(n for n in reversed(terms_of(of)[:-1]) if n > 1)
    few = [n for n in range(1, quads + 1) if quads % n == 0 and n * prod(tile) <= MAX_WRITTEN_OUT]
    if few and few[-1] > 1 and tile[0] > 1:  # LLVM takes chains of products of i16 apart
        _, near = yield st.split(terms[-1], (None, few[-1]))
        yield st.unroll(near)


def _finished(of: Block, total: Block, groups: Handle, columns: int) -> Body:
    """The result, of the same groups of columns, in squares that registers transpose."""
    (read,) = [load for load in reads(of) if load.buffer is made_by(total)]
    (row,) = free_vars(read.indices[1])
    lanes = known(read.buffer.shape[-1]) or 1
    last, every = yield from opened(of)
    at = of.vars.index(row)
    vectors_, inner = yield st.split(every[at], (None, lanes))
    width = min(columns, lanes)
    if columns % width:
        width = columns
    outer, many, lane = yield st.split(every[-1], (None, columns // width, width))
    yield st.reorder(outer, *every[:at], vectors_, *every[at + 1 : -1], many, inner, lane)
    yield st.merge_loops(groups, outer)
    yield from transposed(last, inner, lane)


def _made_together(before: Sequence[Block], kept: Sequence[Block]) -> Generator[Any, Any, Handle]:
    """The data stages go group by group: what is read by others of these alone is in a cache.

    Returns the outermost loop.
    """
    first, *rest = kept  # units come first, then all that is made of scaled data
    around, nests = list[Handle](), list[Handle]()
    for block in kept:
        _, every = yield from opened(block)
        around.append(every[0])
        nests.append(every[GROUPS - 1])
    scaled = {made_by(first)}
    later = list[Block]()
    for block in before:
        if scaled & {load.buffer for load in reads(block)}:
            scaled |= {made_by(block)}
            later.append(block)
    if len(rest) > 1:
        yield st.merge_loops(*nests[1:])
    for block in reversed(later):
        yield st.compute_at((yield st.block(str(block.label))), nests[1])
    yield st.merge_loops(*nests[:2])
    for block in reversed([each for each in before if each not in later]):
        yield st.compute_at((yield st.block(str(block.label))), nests[0])
    return around[0]


def _of_data(of: Block) -> Body:
    """The data stages go along their lanes."""
    one, every = yield from opened(of)
    if is_reduction(of):
        *_, lane, term = every
        yield from summed(one, (term,), (lane,))
    elif turns_rows(of):
        yield from transposed(one, *every[-2:])
    elif made_by(of).dtype.bytes < i32.bytes:
        *_, lane, part = every
        yield st.unroll(part)
        yield st.vectorize(lane)
    else:
        yield st.vectorize(every[-1])
