"""Few rows to many keys by tensor cores that read keys and values from registers, in parts.

    for lot, part in blocks:                        launch 1: a part of the keys
        s[k, r] = f(sum over d of key[k, d] * q[r, d])          16 keys of a warp, quads of threads
        m[r], t[r]                                              as `decode_writer`
        a[j, r] = sum over k of v[k, j] * exp(s[k, r] - m[r])   16 keys of a warp, quads of threads
    for lot, r, j:                                  launch 2: the parts, rescaled

Threads read keys and values in memory order, 16 bytes at a time, the next while these are
multiplied. Keys are rows of the first product, columns of values those of the second: so loaded
registers are operands, and up to eight rows cost no more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

from attrs import frozen

from plica.core import Term, substitute
from plica.ir.loop.scalar import Add, Buffer, Cast, Lt, Min, Scalar, index
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Invoke, Stmt, Store, seq
from plica.schedule.default.gpu.attention_chain import Chain, rows_of
from plica.schedule.default.gpu.cost import EXPONENT, STREAM, ends_of
from plica.schedule.default.gpu.decode_tile import FEW_ROWS, PARTS, WARPS, DecodeTile, lanes_for
from plica.schedule.default.gpu.decode_writer import ZERO, DecodeWriter, Weighed
from plica.schedule.default.gpu.machine import LANES, Gpu
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
from plica.schedule.default.gpu.thread_code import ThreadNames, only_within, region_of
from plica.schedule.default.gpu.warp_meaning import quad_mix, quad_mma

KEYS: Final = 16  # keys that a warp multiplies at once
DEEP: Final = QUADS * OCTET  # terms of a key that the threads of a row read at once
WIDE: Final = OCTET * OCTET  # columns of a value that a warp reads at once
RESIDENT: Final = 2
"""Blocks of each processor, if keys are cut no shorter than they have to be for it."""

LONGEST: Final = 256  # keys of a part, at most
WIDEST: Final = 128
"""Terms and columns, at most: of more, those under way have no room in registers."""


def quad_tile(of: Chain, gpu: Gpu) -> DecodeTile | None:
    """The split of keys, or None if threads are as good, or tensor cores cannot."""
    rows, deep, wide = of.size(*of.rows), of.size(of.depth), of.size(of.column)
    if not FEW_ROWS < rows <= OCTET or deep % DEEP or wide % WIDE or max(deep, wide) > WIDEST:
        return None
    if rows_of(of) is None:
        return None
    keys, step = of.size(of.key), KEYS * WARPS
    wanted = max(1, gpu.processors * RESIDENT // of.size(*of.lots))
    parts = max(min(-(-keys // LONGEST), PARTS), min(wanted, -(-keys // step), PARTS))
    lanes = lanes_for(OCTET, wide)
    return DecodeTile(rows, -(-keys // (parts * step)) * step, 1, lanes, lanes)


def quad_cost(of: Chain, tile: DecodeTile, gpu: Gpu) -> float:
    """Cycles, of which most go into reading keys and values; scores are those of eight rows."""
    scores = of.size(*of.lots, of.key) * OCTET
    busy = of.bytes / STREAM + scores * EXPONENT
    return busy / gpu.processors + ends_of(-(-of.size(of.key) // tile.keys))


def quad_parts(of: Chain, tile: DecodeTile) -> Stages:
    """The stages as statements of threads: parts of the keys, and what joins them."""
    chain = rows_of(of)
    assert chain is not None
    return _QuadWriter(of, chain, tile).stages()


@frozen(eq=False)
class _WarpAhead:
    """The loads of a warp for a step, with the next one's in flight."""

    writer: _QuadWriter
    axes: Mapping[str, int]
    read: Callable[[Scalar, Scalar, Scalar, Scalar], Scalar]
    now: Buffer
    later: Buffer

    def asked(self, step: Scalar) -> Stmt:
        """Issues the loads of a step."""

        def one(i: Scalar, j: Scalar, v: Scalar) -> Stmt:
            return Store(self.later, (i, j, v), self.read(step, i, j, v))

        return self.writer.names.each(self.axes, one, "vectorized")

    def over(self, body: Callable[[Scalar], Stmt]) -> Stmt:
        """The loop over steps, after the first loads were issued."""
        writer, step = self.writer, self.writer.names.var("n")
        steps, lane = writer.steps, writer.lane

        def one(i: Scalar, j: Scalar, v: Scalar) -> Stmt:
            return Store(self.now, (lane, i, j, v), self.later[i, j, v])

        more: Stmt = NOTHING
        if steps > 1:
            more = Branch(Lt(step, index(steps - 1)), self.asked(step + 1), NOTHING)
        taken = writer.names.each(self.axes, one, "vectorized")
        return Alloc(self.now, For(step, index(steps), "serial", seq(taken, more, body(step))))


class _QuadWriter(DecodeWriter):
    """Writes a part of the keys; the join is the same as for plain threads."""

    def __init__(self, of: Chain, chain: Chain, tile: DecodeTile) -> None:
        super().__init__(of, tile, ThreadNames(of.of))
        self.chain, self.dtype = chain, chain.dtype
        self.quad, self.near = self.lane // QUADS, self.lane % QUADS
        self.steps = tile.keys // (KEYS * WARPS)
        self.held = OCTET
        self.values = self._ahead_of((of.size(of.column) // WIDE, QUADS, OCTET), self._value)

    def _block(self) -> Stmt:
        asked = self.values.asked(index(0))  # before the first score
        return Alloc(self.values.later, seq(asked, super()._block()))

    def _value(self, step: Scalar, s: Scalar, k: Scalar, v: Scalar) -> Scalar:
        here = self._first(step) + self.near * QUADS + k
        at = {**self._held_at(here), self.of.column: (s * OCTET + self.quad) * OCTET + v}
        return substitute(self.chain.values, at)

    def _first(self, step: Scalar) -> Scalar:
        """The first key of a warp in a step, as the part counts them."""
        return (step * WARPS + self.warp) * KEYS

    def _row_of(self, r: Scalar) -> Scalar:
        """A row, or the last one for padding rows, whose sums are unused."""
        rows = self.tile.rows
        return r if rows == OCTET else Min(r, index(rows - 1))

    def _ahead_of(
        self, sizes: tuple[int, int, int], read: Callable[[Scalar, Scalar, Scalar, Scalar], Scalar]
    ) -> _WarpAhead:
        """The loads of a warp, step by step."""
        now = self.names.buffer("now", (LANES, *sizes), self.dtype, "warp")
        later = self.names.buffer("next", sizes, self.dtype, "local")
        return _WarpAhead(self, dict(zip("ijv", sizes, strict=True)), read, now, later)

    # --- scores ---------------------------------------------------------------------------------

    def _scored(self, scores: Buffer) -> Stmt:
        of = self.of
        turns = of.size(of.depth) // DEEP
        query = self.names.buffer("query", (LANES, turns, OCTET), self.dtype, "warp")
        sums = self._buffer("sums", (2, 2), "local")
        name, own = quad_mma((turns, OCTET), self.dtype).name, {"h": 2, "p": 2}

        def term(c: Scalar, v: Scalar) -> Scalar:
            return (c * QUADS + self.near) * OCTET + v

        def asked(c: Scalar, v: Scalar) -> Stmt:
            at: dict[Term, Term] = {**self.lots, self.chain.row: self._row_of(self.quad)}
            value = substitute(self.chain.left, {**at, of.depth: term(c, v)})
            return Store(query, (self.lane, c, v), value)

        def key(step: Scalar, half: Scalar, c: Scalar, v: Scalar) -> Scalar:
            here = self._first(step) + half * OCTET + self.quad
            return substitute(self.chain.right, {**self._held_at(here), of.depth: term(c, v)})

        keys = self._ahead_of((2, turns, OCTET), key)

        def multiplied(step: Scalar) -> Stmt:
            def kept(half: Scalar, pair: Scalar) -> Stmt:
                here, r = self._first(step) + half * OCTET + self.quad, self.near * 2 + pair
                score = self._score(sums[half, pair], self._row_of(r), here)
                return Store(scores, (r, here), score)

            return seq(
                self.names.each(own, lambda half, pair: Store(sums, (half, pair), ZERO)),
                Invoke(name, (
                    region_of(keys.now, {0: self.quad * QUADS}, {0: QUADS}),
                    region_of(query, {0: self.near * 2 * QUADS}, {0: 2 * QUADS}),
                    region_of(sums, {}, {}),
                )),
                self.names.each(own, kept),
            )  # fmt: skip

        asks = self.names.each({"c": turns, "v": OCTET}, asked, "vectorized")
        whole = seq(keys.asked(index(0)), asks, keys.over(multiplied))
        return Alloc(keys.later, Alloc(query, Alloc(sums, whole)))

    # --- weighted sums --------------------------------------------------------------------------

    def _mixed(
        self,
        of: Weighed,
        shares: Buffer | None,
        top: Buffer,
        told: Callable[[Scalar], tuple[Scalar, Scalar]],
        before: Stmt,
    ) -> Stmt:
        if of.values is not self.of.values or shares is None:  # parts are joined by threads
            return super()._mixed(of, shares, top, told, before)
        rows, columns, threads = of.rows, self.of.size(self.of.column), WARPS * LANES
        sets = columns // WIDE
        sums = self._buffer("mine", (sets, OCTET // 2, 2, 2), "local")
        own = self.names.buffer("own", (LANES, QUADS), self.dtype, "warp")
        mixed = self._buffer("mixed", (WARPS, OCTET, columns), "shared")
        e, every = self.names.var("e"), {"s": sets, "i": OCTET // 2, "h": 2, "p": 2}

        def weighed(step: Scalar, k: Scalar) -> Stmt:
            here = self._first(step) + self.near * QUADS + k
            return Store(
                own, (self.lane, k), Cast(shares[self._row_of(self.quad), here], self.dtype)
            )

        def added(s: Scalar) -> Stmt:
            return Invoke(quad_mix(self.dtype).name, (
                region_of(self.values.now, {0: self.quad * QUADS, 1: s}, {0: QUADS, 1: 1}),
                region_of(own, {0: self.near * 2 * QUADS}, {0: 2 * QUADS}),
                region_of(sums, {0: s}, {0: 1}),
            ))  # fmt: skip

        def multiplied(step: Scalar) -> Stmt:
            return seq(
                self.names.each({"k": QUADS}, lambda k: weighed(step, k)),
                self.names.each({"s": sets}, added),
            )

        def left(s: Scalar, i: Scalar, half: Scalar, pair: Scalar) -> Stmt:
            r, column = self.near * 2 + pair, (s * OCTET + self.quad) * OCTET + i * 2 + half
            return Store(mixed, (self.warp, r, column), sums[s, i, half, pair])

        place = (e * WARPS + self.warp) * LANES + self.lane
        r, column = place // columns, place % columns
        whole = reduce(Add, [mixed[index(w), r, column] for w in range(WARPS)])
        turns, many = -(-rows * columns // threads), rows * columns
        written = of.write(r, column, (*told(r), whole))
        written = only_within(written, [(place, turns * threads, many)])
        zeros = self.names.each(every, lambda *at: Store(sums, at, ZERO))
        body = seq(
            before,
            zeros,
            self.values.over(multiplied),
            self.names.each(every, left),
            For(e, index(turns), "serial", written),
        )
        return Alloc(mixed, Alloc(own, Alloc(sums, body)))
