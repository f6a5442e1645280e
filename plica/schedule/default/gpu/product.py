"""Products of matrices on threads: tiles in shared memory, tiles of those in registers.

    for z, by, bx in blocks:                a tile of a part of the result each
        for ty, tx in threads:
            for k0:                         a slice of both matrices, fetched by all threads
                for k1:                     a column and a row of it, in registers
                    for vi, vj, i, j: part[…] += left[…] * right[…]

A thread has several small squares of the result, strided so that adjacent threads read adjacent
elements without bank conflicts. `left` and `right` are gathered when slices are fetched, or in
advance.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule import primitive as pr
from plica.schedule.default.gpu.form import DigitLayout, Digits
from plica.schedule.default.gpu.machine import MAX_BLOCKS_YZ
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle

WIDE = 4  # elements that one instruction moves
OWN = ("vi", "i", "vj", "j")  # the digits of rows and columns that are one thread's
COPIED = 2  # slices under way where both sides are copied, at least


@frozen
class ProductTile:
    """Rows, columns and terms of a tile; threads down and across it; how many slices are on their
    way while one is multiplied."""

    rows: int = 128
    columns: int = 128
    terms: int = 16
    down: int = 16
    across: int = 16
    ahead: int = 0
    near: int = 1  # tiles that follow one another down before the next ones across
    kept: bool = False  # whether left slices stay in memory order, if terms are contiguous there

    @property
    def cut(self) -> tuple[Digits, Digits, Digits]:
        """The digits of rows, columns and terms: tiles, squares of a thread, threads, places in a
        square."""
        down, across = self.down * WIDE, self.across * WIDE
        rows: Digits = (("by", 0), ("vi", self.rows // down), ("ty", self.down), ("i", WIDE))
        columns: Digits = (("bx", 0), ("vj", self.columns // across), ("tx", self.across), ("j", WIDE))  # fmt: skip  # noqa: E501
        return rows, columns, (("k", 0), ("e", self.terms))

    def layout(self, along: tuple[bool, bool]) -> DigitLayout:
        """The digits, and the order of those of both sides."""
        left = "by vi ty i k e" if self.keeps(along) else "k e by vi ty i"
        return DigitLayout(*self.cut, tuple(left.split()), ("k", "e", "bx", "vj", "tx", "j"))

    @property
    def threads(self) -> int:
        return self.down * self.across

    def keeps(self, along: tuple[bool, bool]) -> bool:
        """Whether terms are neighbours in slices on the left.

        Such slices are copied while others are multiplied, but a thread needs more registers: it
        reads four terms of its rows at once.
        """
        return self.kept and along[0] and self.across == self.terms

    def copies(self, along: tuple[bool, bool]) -> bool:
        """Whether slices of both operands can be copied asynchronously, without staging in
        registers."""
        return self.ahead > 0 and not any(along)


@frozen
class Blocks:
    """The names of a product's blocks, and the number of tiles: in z, down, across.

    A side that was gathered before has none.
    """

    left: str | None
    right: str | None
    part: str
    out: str | None  # the epilogue, where it is done on sums in registers
    count: tuple[int, int, int]


@do
def product(tile: ProductTile, blocks: Blocks, along: tuple[bool, bool] = (False, False)) -> Body:
    """The schedule of `part[z, m…, n…] += left[z, k…, m…] * right[z, k…, n…]` in tiles.

    `along` says where neighbours among the terms are neighbours in memory.
    """
    c = yield pr.block(blocks.part)
    lots, *count = blocks.count
    keeps = tile.keeps(along)
    rows, columns, _ = tile.cut
    if blocks.out is None:
        result = yield pr.cache_write(c, 0, "local")
        *z, by, vi, ty, i, bx, vj, tx, j, k0, k1 = yield pr.loops(c)
        own = [vi, i, vj, j]
    else:
        result = yield pr.block(blocks.out)
        *z, m, n = yield pr.loops(result)
        by, vi, ty, i = yield pr.split(m, (None, *[length for _, length in rows[1:]]))
        bx, vj, tx, j = yield pr.split(n, (None, *[length for _, length in columns[1:]]))
        yield pr.reorder(*z, by, bx, ty, tx, vi, i, vj, j)
        yield pr.compute_at(c, tx)
        yield pr.set_scope(c, 0, "local")
        *own, k0, k1 = yield _of_sums(c, len(z) + 4, (*rows, *columns))
    k2: tuple[Handle, ...] = ()
    if keeps:
        k1, *k2 = yield pr.split(k1, (None, WIDE))
    if blocks.out is None:
        yield pr.reorder(*z, by, bx, ty, tx, k0, k1, *k2, *own)
        yield pr.reverse_compute_at(result, tx)
    else:
        yield pr.reorder(k0, k1, *k2, *own)
    yield tiles(by, bx, tile.near, (count[0], count[1]), (z[0], lots) if z else None)
    yield pr.bind(ty, "threadIdx.y")
    yield pr.bind(tx, "threadIdx.x")
    for which, given in ((0, blocks.left), (1, blocks.right)):
        copy = yield pr.read_at(k0, c, which, "shared")
        if given is not None:
            yield pr.compute_inline((yield pr.block(given)))
        if which == 0 and keeps:
            yield fetched_rows(copy)
        else:
            fetch = fetched_along if along[which] and tile.across == tile.terms else fetched
            yield fetch(copy, tile, _steps(tile, which))
    for which, loop in ((0, k1), (1, k2[0] if k2 else k1)):
        near = yield pr.read_at(loop, c, which, "local")
        yield pr.vectorize((yield pr.loops(near))[-1])
    yield pr.vectorize((yield pr.loops(result))[-1])
    yield pr.decompose_reduction(c, k0)
    if tile.copies(along):
        # The operands of the next term are loaded from shared memory while this one is multiplied.
        yield pr.unroll(k1)
    if tile.ahead:
        ahead = max(tile.ahead, COPIED) if tile.copies(along) else tile.ahead
        yield pr.annotate(k0, "software_pipeline_stage", (0, 0, ahead))


@do
def _of_sums(c: Handle, outer: int, cut: Digits) -> Body:
    """The loops of a thread's sums inside of this many: its squares, slices, and terms of one."""
    inner = (yield pr.loops(c))[outer:]
    squares = sum(count > 1 for word, count in cut if word in OWN)
    if len(inner) < squares + 2:  # one slice is no loop, but it is where that is fetched
        slices = yield pr.add_unit_loop(inner[squares])
        return (*inner[:squares], slices, *inner[squares:])
    return inner


def _steps(tile: ProductTile, which: int) -> tuple[int, int, int]:
    """Squares of a thread, threads, and places in a square, down or across."""
    _, (_, squares), (_, threads), (_, wide) = tile.cut[which]
    return squares, threads, wide


@do
def tiles(
    by: Handle,
    bx: Handle,
    near: int,
    count: tuple[int, int] = (1, 1),
    lots: tuple[Handle, int] | None = None,
) -> Body:
    """Tiles in an order in which those that run at once read much of the same.

    There are `count` down and across, in each of `lots`.
    """
    down, across = count
    if near == 1 or lots is not None or max(down // near, across) > MAX_BLOCKS_YZ:
        yield laid_out((*([] if lots is None else [lots]), (by, down), (bx, across)))
        return
    far, row = yield pr.split(by, (None, near))
    yield pr.reorder(far, bx, row)
    yield pr.bind(far, "blockIdx.z")
    yield pr.bind(bx, "blockIdx.y")
    yield pr.bind(row, "blockIdx.x")


@do
def laid_out(axes: tuple[tuple[Handle, int], ...]) -> Body:
    """Nested loops of some extents over blocks.

    The innermost is the first axis of the launch; the longest is, where it would be too long for
    another axis; and all are one where several would be.
    """
    order = list(axes)
    if max(extent for _, extent in order[:-1]) > MAX_BLOCKS_YZ:
        longest = max(range(len(order)), key=lambda n: order[n][1])
        order.append(order.pop(longest))
    if max(extent for _, extent in order[:-1]) > MAX_BLOCKS_YZ:
        yield pr.bind((yield pr.fuse(*[loop for loop, _ in axes])), "blockIdx.x")
        return
    for (loop, _), tag in zip(order, ("z", "y", "x")[-len(order) :], strict=True):
        yield pr.bind(loop, f"blockIdx.{tag}")


@do
def fetched(copy: Handle, tile: ProductTile, steps: tuple[int, int, int]) -> Body:
    """A slice copied by all threads of a block together: terms, squares, threads, four at once.

    Threads across handle the slice's columns, for several terms if there are more threads; threads
    down have a term each. So every place is determined by one thread, and neighbours by neighbours.
    """
    squares, threads, _ = steps
    k, *between, t, lanes = (yield pr.loops(copy))[-4 if squares > 1 else -3 :]
    more = tile.across // threads
    if more > 1:
        k, few = yield pr.split(k, (None, more))
        yield pr.reorder(k, *between, few, t)
        t = yield pr.fuse(few, t)
    _, y = yield pr.split(k, (None, tile.down))
    yield pr.bind(y, "threadIdx.y")
    yield pr.bind(t, "threadIdx.x")
    yield pr.vectorize(lanes)


@do
def fetched_rows(copy: Handle) -> Body:
    """A slice copied unchanged by all threads: four contiguous terms at once."""
    t, i, k = (yield pr.loops(copy))[-3:]
    k0, lanes = yield pr.split(k, (None, WIDE))
    x = yield pr.fuse(i, k0)
    yield pr.bind(t, "threadIdx.y")
    yield pr.bind(x, "threadIdx.x")
    yield pr.vectorize(lanes)


@do
def fetched_along(copy: Handle, tile: ProductTile, steps: tuple[int, int, int]) -> Body:
    """A slice copied by all threads, four neighbouring terms at once."""
    squares, threads, _ = steps
    k, *between, t, i = (yield pr.loops(copy))[-4 if squares > 1 else -3 :]
    k0, lanes = yield pr.split(k, (None, WIDE))
    yield pr.reorder(*between, t, i, k0, lanes)
    x = yield pr.fuse(i, k0)
    y = t if threads == tile.down else (yield pr.split(t, (None, tile.down)))[1]
    yield pr.bind(y, "threadIdx.y")
    yield pr.bind(x, "threadIdx.x")
    yield pr.vectorize(lanes)
