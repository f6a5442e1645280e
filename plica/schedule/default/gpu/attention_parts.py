"""Rows that read the same keys, by tensor cores and in parts of the keys, which are then joined.

    for lot, rows, part in blocks:                  launch 1
        a tile of rows and the slices of a part     as `plica.schedule.default.gpu.attention_tile`
        top, total, mixed                           are left as they are
    for lot, r, j:                                  launch 2
        y[r, j] = …                                 as `plica.schedule.default.gpu.decode_writer`

Heads that share keys, and few queries of one head, give too few tiles for all processors, and too
many products for threads while keys are read. The products are those of an attention tile; the join
is that of a decode step's parts: both follow the same law.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import evolve, frozen

from plica.core import Term
from plica.ir.loop.scalar import Buffer, Eq, Lit, Min, Mul, Scalar, ScalarVar, index
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Branch, LoopKind, Stmt, Store, seq
from plica.ir.type import f32
from plica.schedule.default.gpu.attention_chain import Chain, rows_of
from plica.schedule.default.gpu.attention_tile import STEP, AttentionTile
from plica.schedule.default.gpu.attention_writer import AttentionWriter
from plica.schedule.default.gpu.cost import EXPONENT, PRODUCTS, STREAM, WAITING, ends_of
from plica.schedule.default.gpu.decode_tile import FEW_ROWS, PARTS, DecodeTile, lanes_for
from plica.schedule.default.gpu.decode_writer import DecodeWriter
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
from plica.schedule.default.gpu.thread_code import ThreadNames, only_within

PART: Final = AttentionTile(1, 1, 64)
"""The least tile: a warp with as many rows as tensor cores multiply at once."""

WIDEST: Final = 128
"""Columns of such products, at most: sums of wider ones have no room in registers."""

WARPS: Final = 4  # warps of a tile, at most; other rows are other tiles, which read the same keys
MOST_ROWS: Final = 256
"""Rows of more tiles than that are blocks enough, and those of `attention_tile` read less."""

RESIDENT: Final = 8  # blocks of a processor, at most


@frozen
class PartTile:
    """Rows and keys of a step, and how many steps a part has."""

    tile: AttentionTile
    slices: int


def part_tile(of: Chain, gpu: Gpu) -> PartTile | None:
    """The split of rows and keys, or None if threads are as good, or tensor cores cannot."""
    rows = of.size(*of.rows)
    if not FEW_ROWS < rows <= MOST_ROWS or (chain := rows_of(of)) is None:
        return None
    wide = [-(-of.size(axis) // STEP) * STEP for axis in (of.depth, of.column)]
    if max(wide) > WIDEST:
        return None
    tile = evolve(PART, warps=min(WARPS, -(-rows // PART.rows)))
    block = chain.dtype.bytes * (2 * tile.keys * sum(wide) + tile.rows * wide[0])
    beside = min(RESIDENT, gpu.shared // block)
    blocks = of.size(*of.lots) * -(-rows // tile.rows)
    slices = -(-of.size(of.key) // tile.keys)
    parts = min(slices, max(1, gpu.processors * beside // blocks), PARTS)
    return PartTile(tile, -(-slices // parts))


def part_cost(of: Chain, tile: PartTile, gpu: Gpu) -> float:
    """Keys and values are read once by each tile of rows, and multiplied."""
    tiles = -(-of.size(*of.rows) // tile.tile.rows)
    scores = of.size(*of.lots, of.key) * tiles * tile.tile.rows
    wide = of.size(of.depth) + of.size(of.column)
    read = of.bytes * tiles / STREAM + scores * (wide / PRODUCTS + EXPONENT)
    return WAITING * read / gpu.processors + ends_of(2)


def attention_parts(of: Chain, tile: PartTile) -> Stages:
    """The stages as statements of threads: parts of the keys, and what joins them."""
    chain = rows_of(of)
    assert chain is not None
    return _PartWriter(of, chain, tile).stages()


class _PartWriter(AttentionWriter):
    """Writes a tile of rows and a part of the keys; what joins them is the other's."""

    def __init__(self, of: Chain, chain: Chain, tile: PartTile) -> None:
        names = ThreadNames(chain.of)
        lanes = lanes_for(1, of.size(of.column))
        keys = tile.slices * tile.tile.keys
        self.per = tile.slices
        self.join = DecodeWriter(of, DecodeTile(tile.tile.rows, keys, 1, lanes, lanes), names)
        super().__init__(chain, tile.tile, names)

    def _grid(self) -> tuple[Scalar, dict[Term, Term], list[tuple[ScalarVar, int, LoopKind]]]:
        join, block = self.join, self.names.var("b")
        self.part = block % join.parts
        number = block // join.parts
        self.lot = number // self.rows
        blocks = join.many * self.rows * join.parts
        lots = join.of.digits(self.lot, self.of.lots)
        return number % self.rows, lots, [(block, blocks, "blockIdx.x")]

    def _span(self, below: int | None, above: int | None) -> tuple[Scalar, Scalar]:
        begin = self.part * self.per
        if self.slices % self.per == 0:
            return begin, index(self.per)
        return begin, Min(index(self.per), index(self.slices) - begin)

    def stages(self) -> Stages:
        """Both launches."""
        return self.join.joined(self._launched(self._block(self.join.out)))

    def _stored(self, out: Buffer, mixed: Buffer, top: Buffer, total: Buffer) -> Stmt:
        """The triples of a part."""
        of, join, high = self.of, self.join, self.tile.high

        def at(i: Scalar, half: Scalar) -> tuple[Scalar, Scalar, Scalar]:
            return self.lot, self._row(i, half), self.part

        def told(i: Scalar, half: Scalar) -> Stmt:
            greatest = Mul(top[i, half], Lit(self.scale * math.log(2), f32))
            return self._within(self._row(i, half), seq(
                Store(join.tops, at(i, half), greatest),
                Store(join.sums, at(i, half), total[i, half])))  # fmt: skip

        def element(i: Scalar, half: Scalar, j: Scalar, pair: Scalar) -> Stmt:
            column = j * OCTET + self.lane % QUADS * 2 + pair
            whole = Store(join.mixes, (*at(i, half), column), mixed[i, half, j, pair])
            inner = only_within(whole, [(column, self.wide, of.size(of.column))])
            return self._within(self._row(i, half), inner)

        first = Eq(self.lane % QUADS, index(0))
        own = {"i": high, "half": 2}
        return seq(
            Branch(first, self.names.nest(own, told), NOTHING),
            self.names.nest({**own, "j": self.wide // OCTET, "pair": 2}, element, "vectorized"),
        )

    def _within(self, row: Scalar, body: Stmt) -> Stmt:
        """A body guarded by the row being in range."""
        return only_within(body, [(row, self.rows * self.tile.rows, self.of.size(self.of.row))])
