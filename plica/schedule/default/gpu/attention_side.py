"""Sides of attention: which rows a block has, and how it fetches queries, keys and values.

Not here: their use (`attention_writer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

from plica.core import Term, substitute
from plica.ir.loop.scalar import Buffer, Max, Min, Scalar, ScalarVar, index
from plica.ir.loop.statement import For, LoopKind, Stmt, Store
from plica.schedule.default.gpu.attention_chain import Chain, factored, seen_keys
from plica.schedule.default.gpu.attention_tile import STEP, AttentionTile
from plica.schedule.default.gpu.machine import LANES
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
from plica.schedule.default.gpu.thread_code import ThreadNames, axes_of, only_within, within

Element: TypeAlias = Callable[[Scalar, Scalar], Scalar]
"""An element of a side, by its row and its column in a tile."""


def term(of: Term) -> Scalar:
    assert isinstance(of, Scalar)
    return of


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def threads_across(down: int, across: int, count: int) -> int:
    """How many of some threads are side by side, the others below: the power of two with the fewest
    iterations; the largest such.

    >>> threads_across(8, 8, 16), threads_across(16, 10, 32), threads_across(2, 10, 32)
    (8, 2, 16)
    """
    ways = [1 << digit for digit in range(count.bit_length()) if count % (1 << digit) == 0]
    return min(ways, key=lambda wide: (-(-across // wide) * -(-down // (count // wide)), -wide))


class AttentionSides:
    """Knows the names, where a thread is, and how sides lie in shared memory."""

    step = STEP  # the multiple to which columns are padded

    def __init__(self, of: Chain, tile: AttentionTile, names: ThreadNames | None = None) -> None:
        self.of, self.tile = of, tile
        self.octet = 16 // of.dtype.bytes  # elements that are moved at once
        self.terms = 2 * self.octet  # and that tensor cores multiply at once
        self.names = ThreadNames(of.of) if names is None else names
        self.deep, self.wide = (_up(of.size(axis), self.step) for axis in (of.depth, of.column))
        self.warp, self.lane = (self.names.var(word) for word in ("w", "t"))
        # Which rows a warp has, and which keys of a turn.
        self.down: Scalar = self.warp if tile.parts == 1 else self.warp % tile.warps
        self.beside: Scalar = index(0) if tile.parts == 1 else self.warp // tile.warps
        self.rows = -(-of.size(of.row) // tile.rows)
        self.slices = -(-of.size(of.key) // tile.span)
        self.scale, self.score = factored(of.score)
        bounds = seen_keys(of)
        number, self.lots, self.blocks = self._grid()
        # The last rows have most to do where keys after them are not seen: they begin first.
        self.first = (number if bounds[1] is None else self.rows - 1 - number) * tile.rows
        self.begin, self.count = self._span(*bounds)

    def _grid(self) -> tuple[Scalar, dict[Term, Term], list[tuple[ScalarVar, int, LoopKind]]]:
        """Which rows and lots a block has, and the loops over blocks."""
        of, block = self.of, self.names.var("b")
        counts = [of.size(axis) for axis in of.lots]
        lots: dict[Term, Term] = dict(
            zip(of.lots, axes_of(block // self.rows, counts), strict=True)
        )
        return block % self.rows, lots, [(block, prod(counts) * self.rows, "blockIdx.x")]

    def _span(self, below: int | None, above: int | None) -> tuple[Scalar, Scalar]:
        """The first slice that a block looks at, and how many."""
        keys, begin, end = self.tile.span, index(0), index(self.slices)
        if below is not None:
            begin = Min(Max((self.first + below) // keys, index(0)), index(self.slices - 1))
        if above is not None:
            end = Min((self.first + (self.tile.rows - 1 + above)) // keys + 1, end)
        return begin, end if below is None and above is None else Max(end - begin, index(1))

    def _shared(self, like: str) -> Buffer:
        """Memory of a block for a side, 8 x 8 elements together."""
        tile, keys, wide = self.tile, self.tile.span // OCTET, self.wide // OCTET
        shapes = {
            "left": (self.deep // self.terms, tile.warps, tile.high, 2, 2, OCTET, self.octet),
            "right": (self.deep // self.terms, keys, 2, QUADS, 2, self.octet),
            "value": (tile.span // self.terms, wide, 2, self.octet, QUADS, 2),
        }
        return self.names.buffer(like, shapes[like], self.of.dtype, "shared")

    def _fetches(self, to: Buffer, element: Element, rows: int, columns: int) -> tuple[Stmt, ...]:
        """Rows of octets copied by all threads: eight threads write contiguous data.

        The number of threads across is a power of two for any number of columns: copies are then
        provably disjoint, and those of all iterations overlap.
        """
        down, across, eights = rows // OCTET, columns // self.octet, self.tile.threads // OCTET
        wide = threads_across(down, across, eights)
        high = eights // wide
        eight = self.warp * (LANES // OCTET) + self.lane // OCTET
        turn, along, v = (self.names.var(word) for word in ("n", "m", "v"))
        row, at = self.lane % OCTET, turn * high + eight // wide
        unit = along * wide + eight % wide
        place = element(at * OCTET + row, unit * self.octet + v)
        inner: Stmt = Store(to, self._place(to, at, row, unit, v), place)
        inner = For(v, index(self.octet), "vectorized", inner)
        turns, wides = -(-down // high), -(-across // wide)
        inner = only_within(inner, [(at, turns * high, down), (unit, wides * wide, across)])
        inner = For(along, index(wides), "serial", inner)
        return (For(turn, index(turns), "serial", inner),)

    def _place(
        self, to: Buffer, down: Scalar, row: Scalar, along: Scalar, v: Scalar
    ) -> tuple[Scalar, ...]:
        """The place of an element: 8 x 8 elements are contiguous, as tensor cores read them."""
        like = to.name.hint
        if like == "left":  # s, warp, i, half, h, g, e
            high = self.tile.high
            half, square = down % 2, down // 2
            return along // 2, square // high, square % high, half, along % 2, row, v
        if like == "right":  # s, j, h, t, pair, e
            return along // 2, down, along % 2, row // 2, row % 2, v
        if self.octet < OCTET:  # eight keys at once: s, j, p, e, t, pair
            return down, along // 2, row % 2, row // 2, along % 2 * 2 + v // 2, v % 2
        return down // 2, along, down % 2, row, v // 2, v % 2  # s, j, h, e, t, pair

    def _query(self, row: Scalar, depth: Scalar) -> Scalar:
        of = self.of
        return self._element(of.left, {of.row: (self.first + row, self.rows * self.tile.rows),
                                       of.depth: (depth, self.deep)})  # fmt: skip

    def _element(self, of: Scalar, at: Mapping[ScalarVar, tuple[Scalar, int]]) -> Scalar:
        """An element of an operand, 0 out of bounds."""
        told: dict[Term, Term] = {**self.lots, **{axis: place for axis, (place, _) in at.items()}}
        guards = [(place, reach, self.of.size(axis)) for axis, (place, reach) in at.items()]
        return within(term(substitute(of, told)), guards)
