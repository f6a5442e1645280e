"""Attention in warp-group tiles: operands are loaded by the copy engine.

What `plica.schedule.default.gpu.attention_tile` writes, with other memory and other instructions:
queries, keys and values lie in swizzled rows of 128 bytes, four warps have 64 rows, and the sums of
the first product are, rounded, the left side of the second one while they are in registers.
"""

from __future__ import annotations

from typing import Final

from plica.ir.loop import Buffer, For, Load, Scalar, Stages, Stmt, Store, index, seq
from plica.ir.loop.statement import Invoke
from plica.ir.type import known
from plica.schedule.default.gpu.attention_chain import Chain
from plica.schedule.default.gpu.attention_side import Element
from plica.schedule.default.gpu.attention_tile import AttentionTile
from plica.schedule.default.gpu.attention_writer import AttentionWriter
from plica.schedule.default.gpu.tensor_core_meaning import GROUP, OCTET, QUADS, STEPS
from plica.schedule.default.gpu.thread_code import region_of
from plica.schedule.default.gpu.warp_meaning import group_scores, group_warp_mma

PANEL: Final = 64  # elements of a row of 128 bytes


def is_in_panels(of: Chain, tile: AttentionTile) -> bool:
    """Whether sides are rows that the copy engine may fetch, some of each panel of keys."""
    plain = all(isinstance(scalar, Load) for scalar in (of.left, of.right, of.values))
    whole = -(-of.size(of.key) // PANEL) % (tile.span // PANEL) == 0
    return plain and whole


def group_attention_tiles(of: Chain, tile: AttentionTile) -> Stages:
    """The stages as statements of threads, in tiles of groups of warps."""
    return _GroupWriter(of, tile).stages()


class _GroupWriter(AttentionWriter):
    """Writes the statements for warps that multiply together."""

    step = PANEL

    def _octets(self, i: Scalar, half: Scalar) -> Scalar:
        group = (self.down // GROUP * self.tile.high + i) * GROUP + self.down % GROUP
        return group * 2 + half

    def _shared(self, like: str) -> Buffer:
        tile = self.tile
        panels, columns, slabs = self.deep // PANEL, self.wide // PANEL, tile.span // PANEL
        shapes = {
            "left": (panels, tile.warps // GROUP, tile.high, GROUP, 2, OCTET, STEPS, 2, OCTET),
            "right": (panels, slabs, OCTET, QUADS, 2, STEPS, 2, OCTET),
            "value": (slabs, columns, STEPS, 2, OCTET, OCTET, QUADS, 2),
        }
        return self.names.buffer(like, shapes[like], self.of.dtype, "shared.swizzled")

    def _fetches(self, to: Buffer, element: Element, rows: int, columns: int) -> tuple[Stmt, ...]:
        """Tiles by the copy engine: panels of rows, of values 64 rows each."""
        value = to.name.hint == "value"
        size = self.of.size(self.of.column if value else self.of.depth)
        panels = [*range(columns // PANEL)] if size % PANEL else [None]
        slabs = [*range(rows // PANEL)] if value else [None]
        return tuple([self._tile(to, element, slab, at) for slab in slabs for at in panels])

    def _tile(self, to: Buffer, element: Element, slab: int | None, panel: int | None) -> Stmt:
        """Rows of some panels, one behind another; of one where rows end inside of it."""
        fixed: list[Scalar] = [] if slab is None else [index(slab)]
        row: Scalar = index(0 if slab is None else slab * PANEL)
        axes = [(self.names.var("n"), known(size) or 0) for size in to.shape[len(fixed) :]]
        column: Scalar = axes[0][0] * PANEL
        if panel is not None:
            fixed, axes, column = [*fixed, index(panel)], axes[1:], index(panel * PANEL)
        across = step = 1
        for var, count in reversed(axes if panel is not None else axes[1:]):
            if across < PANEL:  # axes of a row are the last ones
                column, across = column + var * across, across * count
            else:
                row, step = row + var * step, step * count
        places = (*fixed, *[var for var, _ in axes])
        body: Stmt = Store(to, places, element(row, column))
        for var, count in reversed(axes):
            body = For(var, index(count), "serial", body)
        return body

    def _products(self, sides: tuple[Buffer, Buffer, Buffer], part: Buffer) -> Stmt:
        left, right, _ = sides
        multiply = group_scores(self.tile.high, self.tile.keys // OCTET, self.of.dtype)
        mine = region_of(part, {0: self.lane}, {0: 1})
        calls = []
        for panel in range(self.deep // PANEL):
            at = {
                0: index(panel),
                1: self.down // GROUP,
                3: self.down % GROUP,
                5: self.lane // QUADS,
            }
            one = region_of(left, at, dict.fromkeys(at, 1))
            slabs = self.tile.keys // PANEL
            here = {0: index(panel), 1: self.beside * slabs, 3: self.lane % QUADS}
            other = region_of(right, here, {0: 1, 1: slabs, 3: 1})
            calls.append(Invoke(multiply.name, (one, other, mine)))
        return seq(*calls)

    def _mixed(self, value: Buffer, part: Buffer, mixed: Buffer) -> Stmt:
        multiply = group_warp_mma(self.tile.high, self.wide // OCTET, self.of.dtype)
        calls = []
        for slab in range(self.tile.keys // PANEL):
            first = {0: self._quad(), 3: index(slab * OCTET)}
            held = region_of(part, first, {0: QUADS, 3: OCTET})
            here = {0: self.beside * (self.tile.keys // PANEL) + slab, 6: self.lane % QUADS}
            other = region_of(value, here, dict.fromkeys(here, 1))
            calls.append(Invoke(multiply.name, (held, other, region_of(mixed, {}, {}))))
        return seq(*calls)
