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

import itertools
from math import prod
from typing import Final

from attrs import frozen

from plica.ir.dtype import DType, f16
from plica.ir.index_map import index_map
from plica.ir.invocation import TensorIntrinsic
from plica.schedule.default.gpu.form import digits
from plica.schedule.default.gpu.product import Sizes, tiles
from plica.schedule.default.gpu.tensor_core_meaning import (
    GROUP,
    OCTET,
    QUADS,
    Along,
    group_mma,
    mma,
)
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

    There are two of each at least, and of squares across a multiple of four.  Where warps multiply
    `together`, down and across are groups of four, squares down are 64 rows each, squares across a
    multiple of eight, and there are four steps.
    """

    down: int = 2
    across: int = 2
    high: int = 4
    wide: int = 8
    steps: int = 2
    ahead: int = 1
    """Slices that are on their way while one is multiplied."""
    together: bool = False
    near: int = 1
    """Tiles that follow one another down before the next ones across."""

    @property
    def words(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """What the digits of rows, columns and terms are called."""
        rows: tuple[str, ...] = ("by", "wm", "i", "half", "g")
        columns: tuple[str, ...] = ("bx", "wn", "j", "t", "pair")
        if self.together:  # one square is no digit: regions of intrinsics would not tell it
            rows = ("by", "wm", *(("i",) if self.high > 1 else ()), "w", "half", "g")
            columns = ("bx", "wn", *(("j",) if self.wide > OCTET else ()), "o", "t", "pair")
        return rows, columns, ("q", "s", "h", "e")

    @property
    def digits(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The digits of rows, columns and terms but the first."""
        rows: tuple[int, ...] = (self.down, self.high, 2, OCTET)
        columns: tuple[int, ...] = (self.across, self.wide, QUADS, 2)
        if self.together:
            high, wide = (self.high,) * (self.high > 1), (self.wide // OCTET,) * (self.wide > OCTET)
            rows = (self.down, *high, GROUP, 2, OCTET)
            columns = (self.across, *wide, OCTET, QUADS, 2)
        return rows, columns, (self.steps, 2, OCTET)

    def order(self, along: Along) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """In which order the digits of a slice lie in memory, on the left and on the right.

        Squares of 8 x 8 elements lie together; where warps multiply together, rows of 64 elements.
        """
        if self.together:
            left = "w half g s h e" if along[0] else "s h e w half g"
            right = "o t pair s h e" if along[1] else "s h e o t pair"
            i, j = "i" * (self.high > 1), "j" * (self.wide > OCTET)
            return tuple(f"by q wm {i} {left}".split()), tuple(f"bx q wn {j} {right}".split())
        left, right = "g e" if along[0] else "e g", "t pair e" if along[1] else "e t pair"
        return (
            tuple(f"by q s wm i half h {left}".split()),
            tuple(f"bx q s wn j h {right}".split()),
        )

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and terms of a tile."""
        rows, columns, terms = (prod(each) for each in self.digits)
        return rows, columns, terms

    def count(self, sizes: Sizes) -> tuple[int, int]:
        """Tiles down and across."""
        rows, columns, _ = self.tile
        return sizes[1] // rows, sizes[2] // columns

    def multiplies(self, along: Along, dtype: DType) -> TensorIntrinsic:
        """The intrinsic of all squares of a thread."""
        return (group_mma if self.together else mma)(self.high, self.wide, along, dtype)

    @property
    def threads(self) -> int:
        return self.down * self.across * LANES * (GROUP if self.together else 1)


@do
def tensor_core(
    of: Warps,
    along: Along,
    labels: tuple[str, ...] = LABELS,
    dtype: DType = f16,
    count: tuple[int, int] = (1, 1),
) -> Body:
    """The schedule of a product in the form of `tensor_core_form`, of so many tiles."""
    left, right = (yield block(labels[0])), (yield block(labels[1]))
    c, out = (yield block(labels[2])), (yield block(labels[3]))
    result = yield cache_write(c, 0, "local")
    down, across, _ = of.digits
    yield transform_block_layout(
        out, index_map(lambda m, n: (*digits(m, down), *digits(n, across)))
    )
    yield reverse_compute_inline(out)
    at = dict(zip(itertools.chain(*of.words), (yield loops(c)), strict=True))
    mine = [at[word] for word in ("i", "half", "j", "o", "pair", "h", "e") if word in at]
    group = [at["w"]] if of.together else []
    yield reorder(
        *[at[word] for word in ("by", "bx", "wm", "wn")], *group, at["g"], at["t"],
        at["q"], at["s"], *mine,
    )  # fmt: skip
    yield reverse_compute_at(result, at["t"])
    warp, lane = (yield fuse(at["wm"], at["wn"], *group)), (yield fuse(at["g"], at["t"]))
    yield tiles(at["by"], at["bx"], of.near, count)
    yield bind(warp, "threadIdx.y")
    yield bind(lane, "threadIdx.x")
    for which, given in ((0, left), (1, right)):
        copy = yield read_at(at["q"], c, which, "shared.swizzled" if of.together else "shared")
        yield compute_inline(given)
        if not of.together:
            yield fetched(copy, of, along[which], which)
    yield vectorize((yield loops(result))[-1])
    yield decompose_reduction(c, at["q"])
    yield tensorize(at["s" if of.together else "i"], of.multiplies(along, dtype).name)
    if not of.together:
        yield unroll(at["s"])
    if of.ahead:
        yield annotate(at["q"], "software_pipeline_stage", (0, 0, of.ahead))
    if of.ahead and of.together:
        yield annotate(at["q"], "software_pipeline_spare", 1)


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
