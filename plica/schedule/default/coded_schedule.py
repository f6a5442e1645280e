"""The template of products by unpacked weights (`plica.schedule.default.coded`).

    for n0:                                          rows of the weight, a few at a time
        for m0:                                      rows of the data, likewise
            for b:                                   blocks of bytes
                for n: scale[n, g] = …               vectors over g
                for h, m, n: part[m, n, v] += …      written out, vectors over v
            for m, n: few[m, n, u] += …
            for m, n: total[m, n] += …
            for m, n: out[m, n] = …

Bytes are read once, in the order in which they lie, and unpacked for each few rows of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from math import prod
from typing import Final

from plica.core import free_vars
from plica.ir.loop import Block, Kernel, loads
from plica.ir.type import f32, known
from plica.schedule import primitive as st
from plica.schedule.default.coded import CODES
from plica.schedule.default.machine import FEW_LANES, Machine
from plica.schedule.default.nest import in_registers, opened, vectors_inside
from plica.schedule.default.role import block_flow, is_reduction, made_by
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

MAX_COLUMNS: Final = 4  # rows of the weight that are read at once
MAX_ROWS: Final = 8  # rows of the data that weights are unpacked for at once
MAX_WRITTEN_OUT: Final = 64  # vectors that are written out: parts of a block for a few rows of both


def coded_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a product, None for other kernels."""
    flow = block_flow(kernel)
    if flow is None:
        return None
    *before, out = flow.blocks.values()
    folds = [*dropwhile(lambda each: not is_reduction(each), before)]
    if is_reduction(out) or len(folds) not in (2, 3) or not all(map(is_reduction, folds)):
        return None
    if not all(_is_coded(block, kernel) for block in (*before[: -len(folds)], folds[0])):
        return None
    if len({load.buffer for load in loads(folds[0].body)} - {made_by(folds[0])}) < 2:
        return None  # a sum of codes alone
    *parts, rank = [len(made_by(fold).shape) for fold in folds]
    if not rank or {*parts} != {rank + 1} or known(made_by(folds[-2]).shape[-1]) != FEW_LANES:
        return None
    total = made_by(folds[-1])
    if any(load.buffer is total and load.indices != out.vars for load in loads(out.body)):
        return None  # the result has other axes than the sums
    return _schedule(before[: -len(folds)], folds, out, rank, machine, kernel)


def _is_coded(part: Block, kernel: Kernel) -> bool:
    """Whether codes are read along the lanes."""
    lane = part.vars[part.kinds.count("spatial") - 1]
    return any(
        load.buffer.dtype in CODES and load.buffer in kernel.params and lane in free_vars(load)
        for load in loads(part.body)
    )


def _schedule(  # noqa: PLR0917  # the blocks, and where they are
    scales: Sequence[Block], folds: Sequence[Block], out: Block, rank: int, machine: Machine,
    kernel: Kernel,
) -> Do:  # fmt: skip
    part = folds[0]
    sizes = [known(size) or 0 for size in part.extents]
    terms = prod([known(size) or 0 for size in part.extents[rank:]])
    column = rank - 1
    row = max([at for at in range(column) if sizes[at] != 1], default=None)
    rows = 1 if row is None else divisor(sizes[row], MAX_ROWS)
    columns = divisor(sizes[column], min(MAX_COLUMNS, machine.registers // 2 // rows))
    # The tiles of the data that fit in a near cache are processed together per weight.
    near = max(machine.cache(2) // 2 // (rows * terms * f32.bytes), 1)
    tiles = 1 if row is None else divisor(sizes[row] // rows, near)

    @do
    def schedule() -> Body:
        _, every = yield from opened(out)
        weight, beside = yield st.split(every[column], (None, columns))
        outer, inner = [*every[:column], weight], [beside]
        if row is not None:
            panel, tile, below = yield st.split(every[row], (None, tiles, rows))
            outer[row] = panel
            outer.append(tile)
            inner.insert(0, below)
        yield st.reorder(*outer, *inner)
        for fold in folds[::-1]:
            one = yield from in_registers(fold, outer[-1])
            around = yield from _written_out(one, fold, rank, (rows, columns))
        for scale in scales:
            one = yield from in_registers(scale, around[-1])
            yield from vectors_inside(one, len(around))
        for each in inner:
            yield st.unroll(each)
        if pays(machine, terms * prod(sizes[:rank]), kernel.params):
            yield st.parallel(weight)

    return schedule()


def divisor(size: int, most: int) -> int:
    """The greatest part of a size that is at most so long."""
    return next(n for n in range(max(min(most, size), 1), 0, -1) if size % n == 0)


def _written_out(one: Handle, of: Block, rank: int, tile: tuple[int, int]) -> Body:
    """The loops of a fold: blocks, then unrolled loops, then lanes. Returns the outer ones, down to
    blocks."""
    together = sum(size > 1 for size in tile)
    every: tuple[Handle, ...] = yield st.loops(one)
    terms, lanes = of.kinds.count("reduce"), int(len(made_by(of).shape) > rank)
    own = every[len(every) - terms - lanes - together :]
    inner, lane, folded = own[:together], own[together : together + lanes], own[together + lanes :]
    sizes = [known(size) or 0 for size in of.extents[-terms:]]
    cut, count = terms, prod(tile)
    while cut and count * sizes[cut - 1] <= MAX_WRITTEN_OUT:
        cut -= 1
        count *= sizes[cut]
    yield st.reorder(*folded, *inner, *lane)
    for handle in (*folded[cut:], *inner):
        yield st.unroll(handle)
    for handle in lane:
        yield st.vectorize(handle)
    yield st.decompose_reduction(one, folded[0])
    return (*every[: len(every) - len(own)], folded[0])
