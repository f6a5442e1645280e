"""Attention in tiles of warps that multiply together: sides come by the copy engine.

What `plica.schedule.default.gpu.attention_tile` writes, with other memory and other instructions:
queries, keys and values lie in swizzled rows of 128 bytes, four warps have 64 rows, and the sums of
the first product are, rounded, the left side of the second one while they are in registers.
"""

from __future__ import annotations

from typing import Final

from plica.core.term import Term
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar, index
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import For, Invoke, LoopKind, Stmt, Store, seq
from plica.ir.type.dtype import DType
from plica.schedule.default.gpu.attention_chain import Chain
from plica.schedule.default.gpu.attention_tile import (
    AttentionTile,
    AttentionWriter,
    Element,
    region_of,
)
from plica.schedule.default.gpu.tensor_core_meaning import GROUP, OCTET, QUADS, STEPS
from plica.schedule.default.gpu.warp_meaning import (
    group_scores,
    group_warp_mma,
    row_max,
    row_power,
    row_sum,
)

PANEL: Final = 64
"""Elements of a row of 128 bytes."""

BLOCKS: Final[tuple[LoopKind, ...]] = ("blockIdx.y", "blockIdx.z")
"""Where lots are, from the last axis on."""


def is_in_panels(of: Chain, tile: AttentionTile) -> bool:
    """Whether sides are rows of whole panels that the copy engine may fetch, some of each."""
    sizes = (of.size(of.depth), of.size(of.column))
    plain = all(isinstance(each, Load) for each in (of.left, of.right, of.values))
    whole = -(-of.size(of.key) // PANEL) % (tile.keys // PANEL) == 0
    return plain and whole and not any(each % PANEL for each in sizes) and len(of.batch) < 3


def group_attention_tiles(of: Chain, tile: AttentionTile) -> Stages:
    """The stages as statements of threads, in tiles of groups of warps."""
    return _GroupWriter(of, tile).stages()


def group_attention_intrinsics(
    tile: AttentionTile, columns: int, dtype: DType
) -> tuple[TensorIntrinsic, ...]:
    """What such a tile asks of the threads of four warps."""
    high, keys = tile.high, tile.keys // OCTET
    return (
        group_scores(high, keys, dtype), row_max(high, keys), row_power(high, keys), row_sum(high),
        group_warp_mma(high, columns // OCTET, dtype),
    )  # fmt: skip


class _GroupWriter(AttentionWriter):
    """Writes the statements for warps that multiply together."""

    def _grid(self) -> tuple[Scalar, dict[Term, Term], list[tuple[ScalarVar, int, LoopKind]]]:
        of, number = self.of, self.names.var("b")
        blocks: list[tuple[ScalarVar, int, LoopKind]] = [(number, self.rows, "blockIdx.x")]
        lots: dict[Term, Term] = {}
        for axis, kind in zip(reversed(of.batch), BLOCKS, strict=False):
            lot = self.names.var("z")
            lots[axis] = lot
            blocks.append((lot, of.size(axis), kind))
        return number, lots, blocks

    def _row(self, i: Scalar, half: Scalar) -> Scalar:
        group = (self.warp // GROUP * self.tile.high + i) * GROUP + self.warp % GROUP
        return self.first + group * (2 * OCTET) + half * OCTET + self.lane // QUADS

    def _shared(self, like: str) -> Buffer:
        tile = self.tile
        panels, columns, slabs = self.deep // PANEL, self.wide // PANEL, tile.keys // PANEL
        shapes = {
            "left": (panels, tile.warps // GROUP, tile.high, GROUP, 2, OCTET, STEPS, 2, OCTET),
            "right": (panels, slabs, OCTET, QUADS, 2, STEPS, 2, OCTET),
            "value": (slabs, columns, STEPS, 2, OCTET, OCTET, QUADS, 2),
        }
        return self.names.buffer(like, shapes[like], self.of.dtype, "shared.swizzled")

    def _fetches(self, to: Buffer, element: Element, rows: int, columns: int) -> tuple[Stmt, ...]:
        """Tiles by the copy engine: panels of rows, of values 64 rows each."""
        if to.name.hint != "value":
            return (self._tile(to, element, (columns // PANEL, rows), None),)
        shape = (columns // PANEL, PANEL)
        return tuple([self._tile(to, element, shape, at) for at in range(rows // PANEL)])

    def _tile(self, to: Buffer, element: Element, shape: tuple[int, int], slab: int | None) -> Stmt:
        """Rows of some panels, one behind another."""
        own = to.shape if slab is None else to.shape[1:]
        axes = [self.names.var("n") for _ in own]
        panel, *rest = axes
        place: Scalar = index(0)
        for var, size in zip(rest, own[1:], strict=True):
            place = place * size + var
        row: Scalar = index(0 if slab is None else slab * PANEL)
        column: Scalar = panel * PANEL
        # Axes of a row are those that make 64 elements, from the last on.
        inner, across = [*reversed([*zip(rest, own[1:], strict=True)])], 1
        step = 1
        for var, size in inner:
            count = int(size.value)  # type: ignore[attr-defined]  # sizes are numbers
            if across < PANEL:
                column = column + var * across
                across *= count
            else:
                row = row + var * step
                step *= count
        starts = axes if slab is None else [index(slab), *axes]
        body: Stmt = Store(to, tuple(starts), element(row, column))
        for var, size in reversed([*zip(axes, own, strict=True)]):
            body = For(var, size, "serial", body)
        return body

    def _products(self, sides: tuple[Buffer, Buffer, Buffer], part: Buffer) -> Stmt:
        left, right, _ = sides
        multiply = group_scores(self.tile.high, self.tile.keys // OCTET, self.of.dtype)
        mine = region_of(part, {0: self.lane}, {0: 1})
        calls = []
        for panel in range(self.deep // PANEL):
            at = {
                0: index(panel),
                1: self.warp // GROUP,
                3: self.warp % GROUP,
                5: self.lane // QUADS,
            }
            one = region_of(left, at, dict.fromkeys(at, 1))
            here = {0: index(panel), 3: self.lane % QUADS}
            other = region_of(right, here, dict.fromkeys(here, 1))
            calls.append(Invoke(multiply.name, (one, other, mine)))
        return seq(*calls)

    def _mixed(self, value: Buffer, part: Buffer, mixed: Buffer) -> Stmt:
        multiply = group_warp_mma(self.tile.high, self.wide // OCTET, self.of.dtype)
        calls = []
        for slab in range(self.tile.keys // PANEL):
            first = {0: self._quad(), 3: index(slab * OCTET)}
            held = region_of(part, first, {0: QUADS, 3: OCTET})
            here = {0: index(slab), 6: self.lane % QUADS}
            other = region_of(value, here, dict.fromkeys(here, 1))
            calls.append(Invoke(multiply.name, (held, other, region_of(mixed, {}, {}))))
        return seq(*calls)
