"""Products of matrices on tensor cores: tiles in shared memory, squares of a warp in registers.

    for by, bx in blocks:                       a tile of the result each
        for warps: for lanes:
            for q:                              a slice of both matrices, fetched by all threads
                for s:                          16 terms of it
                    mma: part[…] += left[…] * right[…], all squares of the thread
            out[…] = part[…]

Rows, columns and terms are digits: what an instruction reads at once are 8 x 8 elements that lie
one behind another, so that no two threads meet in a bank of shared memory.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.ir.index_map import index_map
from plica.schedule.default.gpu.form import digits
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS, Along, mma
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    annotate,
    bind,
    block,
    cache_write,
    compute_inline,
    decompose_reduction,
    fuse,
    loops,
    read_at,
    reorder,
    reverse_compute_at,
    reverse_compute_inline,
    split,
    tensorize,
    transform_block_layout,
    unroll,
    vectorize,
)

LANES: Final = 32
"""Threads of a warp."""

LABELS: Final = ("left", "right", "part", "out")


@frozen
class Warps:
    """Warps down and across a tile, squares of a warp down and across, and steps of 16 terms.

    There are two of each at least, and of squares across a multiple of four.
    """

    down: int = 2
    across: int = 2
    high: int = 4
    wide: int = 8
    steps: int = 2
    ahead: int = 1
    """Slices that are on their way while one is multiplied."""

    @property
    def digits(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The digits of rows, columns and terms but the first."""
        rows, columns = (self.down, self.high, 2, OCTET), (self.across, self.wide, QUADS, 2)
        return rows, columns, (self.steps, 2, OCTET)

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and terms of a tile."""
        rows, columns, terms = (prod(each) for each in self.digits)
        return rows, columns, terms

    @property
    def threads(self) -> int:
        return self.down * self.across * LANES


@do
def tensor_core(of: Warps, along: Along, labels: tuple[str, ...] = LABELS) -> Body:
    """The schedule of a product in the form of `tensor_core_form`."""
    left, right = (yield block(labels[0])), (yield block(labels[1]))
    c, out = (yield block(labels[2])), (yield block(labels[3]))
    result = yield cache_write(c, 0, "local")
    down, across, _ = of.digits
    yield transform_block_layout(
        out, index_map(lambda m, n: (*digits(m, down), *digits(n, across)))
    )
    yield reverse_compute_inline(out)
    by, wm, i, half, g, bx, wn, j, t, pair, q, s, h, e = yield loops(c)
    yield reorder(by, bx, wm, wn, g, t, q, s, i, half, j, pair, h, e)
    yield reverse_compute_at(result, t)
    warp, lane = (yield fuse(wm, wn)), (yield fuse(g, t))
    yield bind(by, "blockIdx.y")
    yield bind(bx, "blockIdx.x")
    yield bind(warp, "threadIdx.y")
    yield bind(lane, "threadIdx.x")
    for which, given in ((0, left), (1, right)):
        copy = yield read_at(q, c, which, "shared")
        yield compute_inline(given)
        yield fetched(copy, of, along[which], which)
    yield vectorize((yield loops(result))[-1])
    yield decompose_reduction(c, q)
    yield tensorize(i, mma(of.high, of.wide, along).name)
    yield unroll(s)
    if of.ahead:
        yield annotate(q, "software_pipeline_stage", (0, 0, of.ahead))


@do
def fetched(copy: Handle, of: Warps, along: bool, which: int) -> Body:
    """A slice copied by all threads, 16 bytes each at a time.

    Eight threads write 8 x 8 elements that lie together; four such groups of a warp read what are
    neighbours.
    """
    s, w, *between = (yield loops(copy))[-7:]
    if which == 0:
        i, half, h, *near = between
    else:
        i, h, *near = between
        first = 0 if along else 1
        near[first : first + 2] = [(yield fuse(*near[first : first + 2]))]
    row, eight = near
    if along:
        more, few = yield split(s, (None, 2))
        yield reorder(more, *([half] if which == 0 else []), w, i, few, h, row, eight)
        rest, lane = (yield fuse(w, i)), (yield fuse(few, h, row))
    else:
        octets = (yield fuse(i, half)) if which == 0 else i
        more, few = yield split(octets, (None, LANES // OCTET))
        yield reorder(more, s, w, h, few, row, eight)
        rest, lane = (yield fuse(s, w, h)), (yield fuse(few, row))
    _, warp = yield split(rest, (None, of.down * of.across))
    yield bind(warp, "threadIdx.y")
    yield bind(lane, "threadIdx.x")
    yield vectorize(eight)
