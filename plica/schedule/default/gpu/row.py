"""Rows: sums and maxima of a row and what follows from them (softmax, norms), by one block a row.

    m[i]    = max over k of x[i, k]            for i in blockIdx.x:
    e[i, j] = exp(x[i, j] - m[i])                  row of x into registers       threads, vectors
    s[i]    = sum over k of e[i, k]     -->        m across the threads
    y[i, j] = e[i, j] / s[i]                       row of e into registers
                                                   s across the threads
                                                   row of y                      threads, vectors

Each thread has the same places of every row, so that a row is read once and written once.  Short
rows share a block, one beside the other.

>>> shape_of(8192, 8192, 4, Gpu())
Shape(threads=256, lanes=4, beside=1)
>>> shape_of(128, 768, 4, Gpu())
Shape(threads=192, lanes=4, beside=1)
>>> shape_of(100000, 64, 4, Gpu())
Shape(threads=2, lanes=4, beside=125)
>>> shape_of(2, 1000003, 4, Gpu()) is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.index_map import IndexMap, index_map
from plica.ir.loop import Block, Kernel
from plica.ir.scalar import Buffer, Div, Intrinsic, Load, Pow
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.shape import Stage, inlined
from plica.schedule.do import Body, do
from plica.schedule.flow import stages as flow
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    bind,
    block,
    cache_read,
    compute_at,
    fuse,
    loops,
    reorder,
    set_scope,
    split,
    transform_layout,
    vectorize,
)
from plica.schedule.site import map_of

MOST: Final = 32
"""Elements of a row that a thread keeps where there are rows enough for all threads."""

FULL: Final = 64
"""Elements that it keeps at most; half of the registers at most."""

THREADS: Final = 1024
"""Threads of a block, at most."""

WIDE: Final = 16
"""Bytes that one instruction moves."""


@frozen
class Shape:
    """Threads of a row, neighbours that a thread takes at once, and rows of a block."""

    threads: int
    lanes: int
    beside: int


def shape_of(rows: int, length: int, size: int, gpu: Gpu) -> Shape | None:
    """How a row of elements of some bytes is cut; None where it cannot be cut evenly."""
    lanes = next(n for n in (8, 4, 2, 1) if n * size <= WIDE and length % n == 0)
    units = length // lanes
    few = MOST if rows * length >= MOST * gpu.most else lanes
    parts = [n for n in range(1, min(units, THREADS) + 1) if units % n == 0]
    wanted = -(-length // few)
    threads = next((n for n in parts if n >= wanted), parts[-1])
    even = [n for n in parts if n % gpu.warp == 0 and n >= min(threads, gpu.warp)]
    if threads > gpu.warp and threads % gpu.warp and even:  # whole warps
        threads = next((n for n in even if n >= threads), even[-1])
    if threads > gpu.threads and length <= MOST * gpu.threads:
        threads = next((n for n in reversed(parts) if n <= gpu.threads), threads)
    if length > min(FULL, gpu.registers // (2 * threads)) * threads:
        return None
    most = max(1, gpu.threads // threads) if rows * threads > gpu.most // 4 else 1
    beside = next(n for n in range(most, 0, -1) if rows % n == 0)
    return Shape(threads, lanes, beside)


def kept_rows(kernel: Kernel, every: Sequence[Stage]) -> tuple[Name, ...]:
    """Rows between the stages that cost too much to be made again for each who reads them."""
    blocks = map_of(kernel).blocks
    found = []
    for each in every[:-1]:
        node = blocks[each.label].node
        if each.reduce or each.spatial != every[-1].spatial or not _is_costly(node):
            continue
        (written,) = flow(kernel.body)[each.label].writes
        readers = [other for other in flow(kernel.body).values() if written in other.inputs]
        if len(readers) > 1 and all(_reads_row(r.block, written) for r in readers):
            found.append(each.label)
    return tuple(found)


def _is_costly(node: Block) -> bool:
    return any(isinstance(each, Intrinsic | Div | Pow) for each in post_order(node.body))


def _reads_row(node: Block, buffer: Buffer) -> bool:
    """Whether a block reads an element of a row of its own: all its rows, and its last variable."""
    rank = len(buffer.shape)
    places = (*node.vars[: rank - 1], node.vars[-1])
    loads = [e for e in post_order(node) if isinstance(e, Load) and e.buffer is buffer]
    return len(node.vars) >= rank and all(each.indices == places for each in loads)


@frozen(eq=False)
class Rowed:
    """The stages of rows, the last one's shape, and which inputs are kept: a reader, a number."""

    stages: tuple[Stage, ...]
    kept: tuple[tuple[Name, int], ...]
    shape: Shape


def rowed(kernel: Kernel, left: tuple[Stage, ...], gpu: Gpu) -> Rowed | None:
    """Stages as stages of rows, None where they are not such."""
    last = left[-1]
    if last.reduce or len(last.spatial) < 2 or not any(each.reduce for each in left):
        return None
    *outer, length = last.spatial
    for each in left[:-1]:
        terms = each.reduce == (length,) and prod(each.spatial) == prod(outer)
        if not (terms if each.reduce else each.spatial == last.spatial):
            return None
        if each.spatial[: len(outer)] != tuple(outer):
            return None
    every = flow(kernel.body)
    (result,) = every[last.label].writes
    shape = shape_of(prod(outer), length, result.dtype.bytes, gpu)
    if shape is None:
        return None
    kept: dict[Buffer, tuple[Name, int]] = {}
    made = {buffer for each in every.values() for buffer in each.writes}
    for stage in left:
        for number, buffer in enumerate(every[stage.label].inputs):
            readers = [each for each in every.values() if buffer in each.inputs]
            row = tuple([str(s) for s in buffer.shape]) == tuple([str(s) for s in result.shape])
            if buffer in made or buffer in kept or not row or len(readers) < 2:
                continue
            if all(_reads_row(each.block, buffer) for each in readers):
                kept[buffer] = stage.label, number
    return Rowed(left, tuple(kept.values()), shape)


@do
def by_rows(of: Rowed, inline: tuple[Name, ...]) -> Body:
    """The schedule of stages of rows; some blocks before them are computed where they are read."""
    yield inlined(inline)
    shape, last = of.shape, of.stages[-1]
    handles: dict[Name, Handle] = {}
    for each in of.stages:
        handles[each.label] = yield block(str(each.label))
    copies = []
    for label, number in of.kept:
        copies.append((yield cache_read(handles[label], number)))
    around = yield loops(handles[last.label])
    rows = around[:-1]
    row = rows[0] if len(rows) == 1 else (yield fuse(*rows))
    each_block = None
    if shape.beside > 1:
        each_block, row = yield split(row, (None, shape.beside))
    inner = [handles[each.label] for each in of.stages[:-1]]
    for handle in (*reversed(inner), *copies):
        yield compute_at(handle, row)
    sums = {handles[each.label] for each in of.stages if each.reduce}
    cut = laid_out(len(last.spatial), shape)
    threads: list[tuple[Handle, Handle | None]] = []
    for handle in (*copies, *inner, handles[last.label]):
        turns, t, lane = yield split((yield loops(handle))[-1], (None, shape.threads, shape.lanes))
        yield reorder(t, turns, lane)
        threads.append((t, None if handle in sums or shape.lanes == 1 else lane))
    for handle in (*copies, *inner):
        if handle not in sums:
            yield transform_layout(handle, "write", 0, cut)
    for handle in (*copies, *inner):
        yield set_scope(handle, 0, "shared")
    yield bind(row if each_block is None else each_block, "blockIdx.x")
    if each_block is not None:
        yield bind(row, "threadIdx.y")
    for t, lane in threads:
        yield bind(t, "threadIdx.x")
        if lane is not None:
            yield vectorize(lane)


def laid_out(rank: int, shape: Shape) -> IndexMap:
    """Where an element of a row is kept: turn, thread, neighbour."""
    turn, lanes = shape.threads * shape.lanes, shape.lanes
    return index_map(
        lambda *places: (*places[:-1], places[-1] // turn, places[-1] % turn // lanes,
                         places[-1] % lanes),
        rank,
    )  # fmt: skip
