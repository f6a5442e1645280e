"""Transposes: they go through a tile in shared memory, so that both sides are read as neighbours.

    y[…, i, …, j] = f(x[…, j, …, i])    -->  for tiles of 32 x 32 in blockIdx.x, y, z:
                                                 tile of x, rows along threadIdx.x    33 a row
                                                 tile of y, rows along threadIdx.x

A row of the tile has one element more than is used: threads that go down a column of it meet in no
bank.  Sizes that 32 does not divide have guards.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Buffer, Kernel, Load
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.dataflow import stages as flow
from plica.schedule.default.gpu.machine import MAX_BLOCKS_YZ
from plica.schedule.default.gpu.shape import BlockStage
from plica.schedule.do import Body, do

SIDE: Final = 32  # rows and columns of a tile: a warp
DOWN: Final = 8  # rows of a tile that are moved at once
LEAST: Final = 1 << 14  # fewer elements than that are not worth a tile


@frozen(eq=False)
class TiledTranspose:
    """Which buffer is read across, by number, and along which axes of the result and of it."""

    number: int
    across: int
    there: int
    row: int = SIDE  # elements of a row of that buffer

    @property
    def offset(self) -> int:
        """How far rows of a tile are from each other, less a multiple of two tiles: one element
        more than a tile, and not as far as rows of the buffer are by themselves."""
        return 1 + SIDE if self.row % (2 * SIDE) == 1 else 1


def transpose_of(kernel: Kernel, of: BlockStage) -> TiledTranspose | None:
    """The transposed load of a block, or None if there is none, or several."""
    if of.reduce or len(of.spatial) < 2 or of.elements < LEAST or of.spatial[-1] < SIDE:
        return None
    stage = flow(kernel.body)[of.label]
    found: list[tuple[Buffer, TiledTranspose]] = []
    for number, buffer in enumerate(stage.inputs):
        for each in _across(stage.block, buffer):
            found.append((buffer, TiledTranspose(number, *each, known(buffer.shape[-1]) or SIDE)))
    if len({(buffer, turn.across, turn.there) for buffer, turn in found}) != 1:
        return None
    turn = found[0][1]
    rows = of.spatial[turn.across]
    others = of.elements // (rows * of.spatial[-1])
    return turn if rows >= SIDE and max(others, -(-rows // SIDE)) <= MAX_BLOCKS_YZ else None


def _across(node: Block, buffer: Buffer) -> list[tuple[int, int]]:
    """The axes of loads whose last index is another variable of the block than its last."""
    found = []
    for load in post_order(node):
        if not isinstance(load, Load) or load.buffer is not buffer or not load.indices:
            continue
        last = load.indices[-1]
        others = [n for n, index in enumerate(load.indices) if node.vars[-1] in free_vars(index)]
        if last in node.vars[:-1] and len(others) == 1 and load.indices[others[0]] is node.vars[-1]:
            found.append((node.vars.index(last), others[0]))
    return found


@do
def tiled_transpose(of: BlockStage, turn: TiledTranspose) -> Body:
    """The schedule of a block that reads one buffer across."""
    handle = yield pr.block(str(of.label))
    around = yield pr.loops(handle)
    i, j = around[turn.across], around[-1]
    rest = [each for n, each in enumerate(around[:-1]) if n != turn.across]
    i0, i1, down = yield pr.split(i, (None, SIDE // DOWN, DOWN))
    j0, lane = yield pr.split(j, (None, SIDE))
    yield pr.reorder(*rest, i0, j0, i1, down, lane)
    copy = yield pr.read_at(j0, handle, turn.number, "shared")
    if len(rest) > 1:
        rest = [(yield pr.fuse(*rest))]
    for each, tag in zip((j0, i0, *rest), ("x", "y", "z"), strict=False):
        yield pr.bind(each, f"blockIdx.{tag}")
    yield pr.bind(down, "threadIdx.y")
    yield pr.bind(lane, "threadIdx.x")
    *_, rows, columns = yield pr.loops(copy)
    copies, row = yield pr.split(rows, (None, DOWN))
    yield pr.bind(row, "threadIdx.y")
    yield pr.bind(columns, "threadIdx.x")
    for each in (i1, copies):
        yield pr.unroll(each)
    yield pr.storage_align(copy, 0, turn.there, 2 * SIDE, turn.offset)
