"""Products of matrices on tensor cores: tiles in shared memory, squares of a warp in registers.

    for z, by, bx in blocks:                    a tile of the result each
        for warps: for lanes:
            for q:                              a slice of both matrices, fetched by all threads
                for s:                          16 terms of it
                    mma: part[…] += left[…] * right[…], all squares of the thread
            out[…] = epilogue(part[…])          where that is inside

Rows, columns and terms are digits: an instruction reads contiguous 8 x 8 squares, so that there are
no bank conflicts.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.type import DType
from plica.schedule import primitive as pr
from plica.schedule.default.gpu.form import DigitLayout, Digits
from plica.schedule.default.gpu.machine import LANES
from plica.schedule.default.gpu.product import Blocks, tiles
from plica.schedule.default.gpu.tensor_core_meaning import (
    GROUP,
    OCTET,
    QUADS,
    Along,
    group_mma,
    mma,
    panels_of,
)
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle

STORED_TOGETHER: Final = 8
"""Elements that a thread loads from staged sums before it stores the first."""

BANKS: Final = 32  # words of shared memory that are read at once


@frozen
class Warps:
    """Warps down and across a tile, squares of a warp down and across, and steps of 16 terms.

    There are at least two of each, except squares down. With warps `together`, down and across are
    groups of four, squares down are 64 rows each, squares across panels of eight if columns are
    contiguous, and there are four steps.
    """

    down: int = 2
    across: int = 2
    high: int = 4
    wide: int = 8
    steps: int = 2
    ahead: int = 1  # slices that are on their way while one is multiplied
    together: bool = False
    near: int = 1  # tiles that follow one another down before the next ones across
    octet: int = OCTET  # neighbouring terms that are moved at once: 16 bytes

    def versions(self, slices: int) -> int:
        """The number of slices with memory: those in flight, the current one, and one that warp
        groups may not have finished; at most all."""
        return min(self.ahead + 1 + (self.together and self.ahead > 0), slices)

    @property
    def cut(self) -> tuple[Digits, Digits, Digits]:
        """The digits of rows, columns and terms."""
        # One square is no digit: regions of intrinsics would not tell it.
        high = (("i", self.high),) if self.high > 1 else ()
        rows: Digits = (("by", 0), ("wm", self.down), *high, ("half", 2), ("g", OCTET))
        columns: Digits = (("bx", 0), ("wn", self.across), ("j", self.wide), ("t", QUADS), ("pair", 2))  # fmt: skip  # noqa: E501
        if self.together:
            panels, octets = panels_of(self.wide)
            wide = (("j", panels),) if panels > 1 else ()
            rows = (("by", 0), ("wm", self.down), *high, ("w", GROUP), ("half", 2), ("g", OCTET))
            columns = (("bx", 0), ("wn", self.across), *wide, ("o", octets), ("t", QUADS), ("pair", 2))  # fmt: skip  # noqa: E501
        return rows, columns, (("q", 0), ("s", self.steps), ("h", 2), ("e", self.octet))

    def layout(self, along: Along) -> DigitLayout:
        """The digits, and in which order those of a slice lie in memory.

        Squares of 8 x 8 elements lie together; where warps multiply together, rows of 64 elements.
        """
        i = "i" * (self.high > 1)
        if self.together:
            left = "w half g s h e" if along[0] else "s h e w half g"
            right = "o t pair s h e" if along[1] else "s h e o t pair"
            j = "j" * (panels_of(self.wide)[0] > 1)
            order = f"by q wm {i} {left}", f"bx q wn {j} {right}"
        else:
            left, right = "g e" if along[0] else "e g", "t pair e" if along[1] else "e t pair"
            order = f"by q s wm {i} half h {left}", f"bx q s wn j h {right}"
        return DigitLayout(*self.cut, tuple(order[0].split()), tuple(order[1].split()))

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and terms of a tile."""
        rows, columns, terms = (prod(count for _, count in each[1:]) for each in self.cut)
        return rows, columns, terms

    @property
    def in_panels(self) -> bool:
        """Whether columns may be neighbours on the right, not terms."""
        return not self.together or self.wide % OCTET == 0

    def multiplies(self, along: Along, dtype: DType, other: DType | None = None) -> TensorIntrinsic:
        """The intrinsic of all squares of a thread."""
        if self.together:
            return group_mma(self.high, self.wide, along, dtype, other)
        return mma(self.high, self.wide, along, dtype, other)

    @property
    def threads(self) -> int:
        return self.down * self.across * LANES * (GROUP if self.together else 1)


@do
def tensor_core(  # noqa: PLR0917  # what a schedule of tiles is made of
    of: Warps,
    along: Along,
    blocks: Blocks,
    dtypes: tuple[DType, DType],
    counts: tuple[int, ...] = (),
    staged: int | None = None,
    *,
    spare: bool = True,
) -> Body:
    """The schedule of a product in tiles of the layout of some warps.

    A slice's memory is reused one iteration later if warps may not have finished with it, unless
    all slices have memory.

    With box-shaped tiles of given sizes (`counts`) along each row axis, these are axes of the
    result; else they are one. `staged` sums, by their number among the epilogue's operands, are in
    shared memory before it, so that adjacent threads store adjacent elements.
    """
    c = yield pr.block(blocks.part)
    lots, down, across = blocks.count
    words = [word for each in of.cut[:2] for word, _ in each]
    inside: tuple[Handle, ...] = ()
    if blocks.out is None:
        result = yield pr.cache_write(c, 0, "local")
        around = yield pr.loops(c)
    elif staged is not None:
        *lead, m, n = yield pr.loops((yield pr.block(blocks.out)))
        by, row = yield pr.split(m, (None, of.tile[0]))
        bx, column = yield pr.split(n, (None, of.tile[1]))
        yield pr.reorder(*lead, by, bx, row, column)
        inside = (row, column)
        result = yield pr.read_at(bx, (yield pr.block(blocks.out)), staged, "shared")
        # Threads of a warp have eight rows: these begin in different banks.
        yield pr.storage_align(result, 0, len(lead) + len(of.cut[0]) - 1, BANKS, BANKS // 4)
        words = [word for each in of.cut[:2] for word, count in each[1:] if count > 1]
        around = (*lead, by, bx, *(yield pr.loops(result))[len(lead) + 2 :])
        words = ["by", "bx", *words]
    else:
        result = yield pr.block(blocks.out)
        mine = yield pr.loops(result)
        digits = [count for _, count in of.cut[0][1:]]
        if counts:
            *pixel, n = mine
            by, inner = yield boxes(tuple(pixel), counts)
            lead, rows = [], (by, *(yield pr.split(inner, (None, *digits[1:]))))
        else:
            *lead, m, n = mine
            rows = yield pr.split(m, (None, *digits))
        columns = yield pr.split(n, (None, *[count for _, count in of.cut[1][1:]]))
        around = (*lead, *rows, *columns)
    if blocks.out is None:
        words += [word for word, _ in of.cut[2]]
    at = dict(zip((*(("z",) if lots > 1 else ()), *words), around, strict=True))
    warps = [at[word] for word in ("wm", "wn", "w") if word in at]
    lot = [at["z"]] if lots > 1 else []
    outer = [*lot, at["by"], at["bx"], *warps, at["g"], at["t"]]
    own = [word for word in ("i", "half", "j", "o", "pair") if word in at]
    if blocks.out is None:
        yield pr.reorder(*outer, at["q"], at["s"], *[at[word] for word in (*own, "h", "e")])
        yield pr.reverse_compute_at(result, at["t"])
    else:
        # The epilogue encloses the staged sums as well: its tile loops are in order.
        yield pr.reorder(*(outer[len(lot) + 2 :] if inside else outer), *[at[word] for word in own])
        yield pr.compute_at(c, at["t"])
        yield pr.set_scope(c, 0, "local")
        inner = (yield pr.loops(c))[len(outer) :]
        names = [*[word for word in words if word in own], *[word for word, _ in of.cut[2]]]
        if len(inner) < len(names):  # one slice is no loop, but it is where that is fetched
            names.remove("q")
            at["q"] = yield pr.add_unit_loop(inner[0])
        at |= dict(zip(names, inner, strict=True))
        yield pr.reorder(at["q"], at["s"], *[at[word] for word in (*own, "h", "e")])
    warp = warps[0] if len(warps) == 1 else (yield pr.fuse(*warps))
    lane = yield pr.fuse(at["g"], at["t"])
    yield tiles(at["by"], at["bx"], of.near, (down, across), (lot[0], lots) if lot else None)
    yield pr.bind(warp, "threadIdx.y")
    yield pr.bind(lane, "threadIdx.x")
    for which, given in ((0, blocks.left), (1, blocks.right)):
        copy = yield pr.read_at(at["q"], c, which, "shared.swizzled" if of.together else "shared")
        if given is not None:
            yield pr.compute_inline((yield pr.block(given)))
        if not of.together:
            yield fetched(copy, of, along[which], which)
    yield pr.vectorize((yield pr.loops(result))[-1])
    yield pr.decompose_reduction(c, at["q"])
    first = "s" if of.together else own[0]
    yield pr.tensorize(at[first], of.multiplies(along, *dtypes).name)
    if not of.together:
        yield pr.unroll(at["s"])
    if of.ahead:
        yield pr.annotate(at["q"], "software_pipeline_stage", (0, 0, of.ahead))
    if of.ahead and of.together and spare:
        yield pr.annotate(at["q"], "software_pipeline_spare", 1)
    if inside:
        shares = (None, STORED_TOGETHER, of.threads // LANES, LANES)
        _, some, warp, lane = yield pr.split((yield pr.fuse(*inside)), shares)
        yield pr.unroll(some)
        yield pr.bind(warp, "threadIdx.y")
        yield pr.bind(lane, "threadIdx.x")


@do
def boxes(pixel: tuple[Handle, ...], counts: tuple[int, ...]) -> Body:
    """Loops over the axes of a result as one over boxes and one inside of a box."""
    far: list[Handle] = []
    near: list[Handle] = []
    for axis, count in zip(pixel, counts, strict=True):
        box, place = yield pr.split(axis, (None, count))
        far.append(box)
        near.append(place)
    yield pr.reorder(*far, *near)
    if len(pixel) == 1:
        return far[0], near[0]
    return (yield pr.fuse(*far)), (yield pr.fuse(*near))


@do
def fetched(copy: Handle, of: Warps, along: bool, which: int) -> Body:
    """A slice copied by all threads, 16 bytes each at a time.

    Eight threads write contiguous 8 x 8 squares; four such groups of a warp read contiguous rows.
    """
    squares: tuple[Handle, ...] = ()
    halves: tuple[Handle, ...] = ()
    many = of.down if which == 0 else of.across
    warps: tuple[Handle, ...] = ()  # one warp is no loop
    every = yield pr.loops(copy)
    if which == 0:
        count = 5 + (many > 1) + (of.high > 1)
        s, *own, half, h, row, eight = every[-count:]
        warps, squares, halves = tuple(own[: many > 1]), tuple(own[many > 1 :]), (half,)
    else:
        s, *own, h, one, two, three = every[-6 - (many > 1) :]
        near = [one, two, three]
        first = 0 if along else 1
        near[first : first + 2] = [(yield pr.fuse(*near[first : first + 2]))]
        warps, squares, (row, eight) = tuple(own[:-1]), (own[-1],), near
    if along:
        more, few = yield pr.split(s, (None, 2))
        # All warps have a square each: of one square down, both halves; else more terms.
        mine, others = (squares, halves) if squares else (halves, ())
        yield pr.reorder(more, *others, *warps, *mine, few, h, row, eight)
        outer = (*warps, *mine)
        if (
            many
            * (of.high if which == 0 and squares else 2 if which == 0 else of.wide)
            % (of.down * of.across)
        ):
            outer = (more, *others, *outer)
        lane = yield pr.fuse(few, h, row)
    else:
        inner = (*squares, *halves)
        octets = inner[0] if len(inner) == 1 else (yield pr.fuse(*inner))
        more, few = yield pr.split(octets, (None, LANES // OCTET))
        yield pr.reorder(more, s, *warps, h, few, row, eight)
        outer = (s, *warps, h)
        lane = yield pr.fuse(few, row)
    rest = outer[0] if len(outer) == 1 else (yield pr.fuse(*outer))
    _, warp = yield pr.split(rest, (None, of.down * of.across))
    yield pr.bind(warp, "threadIdx.y")
    yield pr.bind(lane, "threadIdx.x")
    yield pr.vectorize(eight)
