"""A product, a fold that rescales, and a product of those, in tiles: no score is in memory.

    for z, rows in blocks:                              a tile of queries each
        for warps: for lanes:
            left = queries                              in shared memory, once
            for slice of keys:
                right, values = …                       in shared memory, while others are used
                part = left * right                     tensor cores, in registers of a warp
                part = f(part)                          scale, bias, mask: whatever the scores are
                top, before = max(top, part), top
                part = exp(part - top)
                total = total * exp(before - top) + sum of part
                mixed = mixed * exp(before - top) + part * values          tensor cores
            out[…] = epilogue(mixed, total, top)

Scores are kept as exponents of two, which machines have an instruction for.

It is built from the stages of `plica.schedule.online_softmax` alone: loads, scores and results are
their terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from plica.core import Term
from plica.ir.loop import (
    NOTHING,
    Alloc,
    Branch,
    Buffer,
    ExternStage,
    For,
    Lit,
    Load,
    Region,
    Scalar,
    ScalarVar,
    Select,
    Stages,
    Stmt,
    Store,
    allocated,
    index,
    seq,
)
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import Add, Eq, Lt, Max, Mul
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import Invoke, LoopKind
from plica.ir.type import f32
from plica.schedule.default.gpu.attention_chain import LEAST, Chain, power, scale_of
from plica.schedule.default.gpu.attention_side import AttentionSides
from plica.schedule.default.gpu.attention_tile import AttentionTile, scores_mma
from plica.schedule.default.gpu.machine import LANES, vector_lanes
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
from plica.schedule.default.gpu.thread_code import only_within, region_of, within
from plica.schedule.default.gpu.warp_meaning import row_max, row_power, row_sum, warp_mma


def attention_tiles(of: Chain, tile: AttentionTile) -> Stages:
    """The stages as statements of threads, in tiles of some warps."""
    return AttentionWriter(of, tile).stages()


class AttentionWriter(AttentionSides):
    """Writes the statements."""

    def stages(self) -> Stages:
        """All of it as one stage of statements."""
        of = self.of
        out = Buffer(self.names.name("out"), of.out.out.shape, of.out.out.dtype)
        return stages(of.of.inputs, (ExternStage((out,), self._launched(self._block(out))),))

    def _launched(self, body: Stmt) -> Stmt:
        """The code of all threads and blocks."""
        threads: list[tuple[ScalarVar, int, LoopKind]] = [
            (self.lane, LANES, "threadIdx.x"),
            (self.warp, self.tile.threads // LANES, "threadIdx.y"),
        ]  # fmt: skip
        for var, size, kind in (*threads, *self.blocks):
            body = For(var, index(size), kind, body)
        return body

    # --- a block --------------------------------------------------------------------------------

    def _block(self, out: Buffer) -> Stmt:
        tile, names = self.tile, self.names
        high, wide = tile.high, self.wide // OCTET
        queries = self._shared("left")
        mixed = names.buffer("mixed", (high, 2, wide, 2), f32, "local")
        top = names.buffer("top", (high, 2), f32, "local")
        sums = names.buffer("sums", (LANES, high, 2), f32, "warp")
        total = names.buffer("total", (high, 2), f32, "local")
        begin = seq(
            *self._fetches(queries, self._query, tile.rows, self.deep),
            names.nest({"i": high, "half": 2, "j": wide, "pair": 2},
                  lambda *at: Store(mixed, at, Lit(0.0, f32))),
            names.nest({"i": high, "half": 2}, lambda *at: seq(
                Store(top, at, LEAST), Store(sums, (self.lane, *at), Lit(0.0, f32)),
                Store(total, at, Lit(0.0, f32)))),
        )  # fmt: skip
        held = region_of(sums, {0: self._quad()}, {0: QUADS})
        end = Invoke(row_sum(high).name, (held, region_of(total, {}, {})))
        whole = seq(begin, self._slices(queries, mixed, top, sums), end,
                    self._stored(out, mixed, top, total))  # fmt: skip
        return allocated(whole, (total, sums, top, mixed, queries))

    def _quad(self) -> Scalar:
        return self.lane // QUADS * QUADS

    def _at(self, turn: Scalar, key: Scalar) -> Scalar:
        """Which key is one of a turn's."""
        return (self.begin + turn) * self.tile.span + key

    def _octets(self, i: Scalar, half: Scalar) -> Scalar:
        """How many octets of rows of a block are before those of a warp."""
        return (self.down * self.tile.high + i) * 2 + half

    def _row(self, i: Scalar, half: Scalar) -> Scalar:
        """Which query a thread has."""
        return self.first + self._octets(i, half) * OCTET + self.lane // QUADS

    # --- slices ---------------------------------------------------------------------------------

    def _slices(self, queries: Buffer, mixed: Buffer, top: Buffer, sums: Buffer) -> Stmt:
        tile, names, of = self.tile, self.names, self.of
        turn = names.var("q")
        right, value = self._shared("right"), self._shared("value")
        reach = self.slices * tile.span

        def key(row: Scalar, depth: Scalar) -> Scalar:
            at = {of.key: (self._at(turn, row), reach), of.depth: (depth, self.deep)}
            return self._element(of.right, at)

        def weighed(row: Scalar, column: Scalar) -> Scalar:
            at = {of.key: (self._at(turn, row), reach), of.column: (column, self.wide)}
            return self._element(of.values, at)

        copies = (
            *self._fetches(right, key, tile.span, self.deep),
            *self._fetches(value, weighed, tile.span, self.wide),
        )
        body = (*copies, self._step(turn, (queries, right, value), mixed, top, sums))
        notes = (("software_pipeline_stage", (*[0] * len(copies), 1)),)
        whole: Stmt = Alloc(right, Alloc(value, seq(*body)))
        return For(turn, self.count, "serial", whole, notes if self.slices > 1 else ())

    def _step(
        self,
        turn: ScalarVar,
        sides: tuple[Buffer, Buffer, Buffer],
        mixed: Buffer,
        top: Buffer,
        sums: Buffer,
    ) -> Stmt:
        """The processing of one slice of keys."""
        tile, names, lane = self.tile, self.names, self.lane
        high, keys, wide = tile.high, tile.keys // OCTET, self.wide // OCTET
        part = names.buffer("part", (LANES, high, 2, keys, 2), f32, "warp")
        most, base, less, scale = (
            names.buffer(word, (high, 2), f32, "local")
            for word in ("most", "base", "less", "scale")
        )
        own = {"i": high, "half": 2, "j": keys, "pair": 2}
        rows = {"i": high, "half": 2}
        quad = region_of(part, {0: self._quad()}, {0: QUADS})
        mine, weighed = (region_of(buffer, {0: lane}, {0: 1}) for buffer in (part, sums))

        def lowered(i: Scalar, half: Scalar) -> Stmt:
            at = (i, half)
            none = Eq(most[at], LEAST)
            return seq(
                Store(scale, at, scale_of(most[at], self.scale)),
                Store(base, at, Select(none, Lit(0.0, f32), most[at] * scale[at])),
                Store(less, at, power(top[at] * scale[at] - base[at])),
                Store(top, at, most[at]),
                Store(sums, (lane, *at), sums[(lane, *at)] * less[at]),
            )

        body = seq(
            names.nest(own, lambda *at: Store(part, (lane, *at), Lit(0.0, f32))),
            self._products(sides, part),
            *self._scores(turn, part, own),
            names.nest(rows, lambda *at: Store(most, at, top[at])),
            Invoke(row_max(high, keys).name, (quad, region_of(most, {}, {}))),
            names.nest(rows, lowered),
            names.nest({"i": high, "half": 2, "j": wide, "pair": 2},
                  lambda *at: Store(mixed, at, mixed[at] * less[at[0], at[1]])),
            Invoke(row_power(high, keys).name,
                   (region_of(base, {}, {}), region_of(scale, {}, {}), mine, weighed)),
            self._mixed(sides[2], part, mixed),
        )  # fmt: skip
        return allocated(body, (scale, less, base, most, part))

    def _products(self, sides: tuple[Buffer, Buffer, Buffer], part: Buffer) -> Stmt:
        left, right, _ = sides
        step = self.names.var("s")
        multiply = scores_mma(self.tile.high, self.tile.keys // OCTET, self.of.dtype)
        keys = self.tile.keys // OCTET
        one = region_of(left, {0: step, 1: self.down, 5: self.lane // QUADS}, {0: 1, 1: 1, 5: 1})
        at = {0: step, 1: self.beside * keys, 3: self.lane % QUADS}
        other = region_of(right, at, {0: 1, 1: keys, 3: 1})
        mine = region_of(part, {0: self.lane}, {0: 1})
        return self._unrolled(step, self.deep // self.terms, multiply, (one, other, mine))

    def _mixed(self, value: Buffer, part: Buffer, mixed: Buffer) -> Stmt:
        step = self.names.var("s")
        multiply = warp_mma(self.tile.high, self.wide // OCTET, self.of.dtype)
        squares = self.terms // OCTET
        held = region_of(part, {0: self._quad(), 3: step * squares}, {0: QUADS, 3: squares})
        steps = self.tile.keys // self.terms
        at = {0: self.beside * steps + step, 4: self.lane % QUADS}
        other = region_of(value, at, {0: 1, 4: 1})
        return self._unrolled(step, steps, multiply, (held, other, region_of(mixed, {}, {})))

    def _unrolled(
        self, step: ScalarVar, count: int, what: TensorIntrinsic, regions: tuple[Region, ...]
    ) -> Stmt:
        return For(step, index(count), "unrolled", Invoke(what.name, regions))

    def _scores(self, turn: ScalarVar, part: Buffer, own: Mapping[str, int]) -> tuple[Stmt, ...]:
        """The scores of products, but for their scale: nothing is as low as a key that is none."""
        of = self.of
        reach = {of.key: self.slices * self.tile.span, of.row: self.rows * self.tile.rows}
        whole = all(many <= of.size(axis) for axis, many in reach.items())
        if whole and isinstance(self.score, Load) and self.score.buffer is of.held:
            return ()

        def scored(*at: ScalarVar) -> Stmt:
            i, half, j, pair = at
            own = j * OCTET + self.lane % QUADS * 2 + pair
            key = self._at(turn, self.beside * self.tile.keys + own)
            places = {of.row: self._row(i, half), of.key: key}
            mine = (self.lane, *at)
            score = of.scored(self.score, part[mine], self.lots | dict(places))
            guards = [(places[axis], many, of.size(axis)) for axis, many in reach.items()]
            return Store(part, mine, within(score, guards, LEAST))

        return (self.names.nest(own, scored),)

    # --- the result -----------------------------------------------------------------------------

    def _stored(self, out: Buffer, mixed: Buffer, top: Buffer, total: Buffer) -> Stmt:
        if self.tile.parts > 1:
            return self._joined(out, mixed, top, total)

        inverse = self.names.buffer("inverse", (self.tile.high, 2), f32, "local")

        def inverted(i: Scalar, half: Scalar) -> Stmt:
            whole = total[i, half]
            if (rows := self.of.size(self.of.row)) < self.rows * self.tile.rows:
                # Division by the sum of an empty row is avoided: it is very slow.
                whole = Select(Lt(self._row(i, half), index(rows)), whole, Lit(1.0, f32))
            return Store(inverse, (i, half), Lit(1.0, f32) / whole)

        def element(i: Scalar, half: Scalar, j: Scalar, pair: Scalar) -> Stmt:
            column = j * OCTET + self.lane % QUADS * 2 + pair
            triple = (top[i, half], total[i, half], mixed[i, half, j, pair])
            at = (self._row(i, half), column)
            return self._written(out, at, self.wide, triple, inverse[i, half])

        own = {"i": self.tile.high, "half": 2}
        whole = self.names.nest({**own, "j": self.wide // OCTET, "pair": 2}, element, "vectorized")
        return Alloc(inverse, seq(self.names.nest(own, inverted), whole))

    def _written(
        self,
        out: Buffer,
        at: tuple[Scalar, Scalar],
        reach: int,
        triple: tuple[Scalar, ...],
        inverse: Scalar,
    ) -> Stmt:
        """What follows of a triple, in a row and a column, of which there may be more than results.

        A narrow result is multiplied by the inverse of the sum, which rounds once more than a
        quotient, far below the result's precision.
        """
        of, (row, column) = self.of, at
        greatest = Mul(triple[0], Lit(self.scale * math.log(2), f32))
        here: dict[Term, Term] = {**self.lots, of.row: row, of.column: column}
        is_narrow = of.out.out.dtype in NARROW
        whole = of.stored(out, (greatest, *triple[1:]), here, inverse if is_narrow else None)
        rows = (row, self.rows * self.tile.rows, of.size(of.row))
        return only_within(whole, [rows, (column, reach, of.size(of.column))])

    def _joined(self, out: Buffer, mixed: Buffer, top: Buffer, total: Buffer) -> Stmt:
        """Triples of warps that had the same rows, joined in shared memory: eight neighbours of a
        row by each thread, those below by the next, so that no two of eight ask one bank."""
        tile, names, parts = self.tile, self.names, self.tile.parts
        tops, sums = (
            names.buffer(word, (parts, tile.rows), f32, "shared") for word in ("tops", "sums")
        )
        squares = (parts, tile.rows // OCTET, self.wide // OCTET, OCTET, OCTET)
        mixes = names.buffer("mixes", squares, f32, "shared")
        own = {"i": tile.high, "half": 2}

        def row(i: Scalar, half: Scalar) -> Scalar:
            return self._row(i, half) - self.first

        def told(i: Scalar, half: Scalar) -> Stmt:
            at = (self.beside, row(i, half))
            return seq(Store(tops, at, top[i, half]), Store(sums, at, total[i, half]))

        def left(i: Scalar, half: Scalar, j: Scalar, pair: Scalar) -> Stmt:
            down, column = self._octets(i, half), self.lane % QUADS * 2 + pair
            at = (self.beside, down, j, self.lane // QUADS, column)
            return Store(mixes, at, mixed[i, half, j, pair])

        columns, e = -(-self.of.size(self.of.column) // OCTET), names.var("e")
        many, eights = tile.rows // OCTET * columns, tile.threads // OCTET
        unit = e * eights + self.warp * (LANES // OCTET) + self.lane // OCTET
        body = self._element_of(out, (tops, sums, mixes), unit // columns, unit % columns)
        rows, row_of = self.of.size(self.of.row), self.first + unit // columns * OCTET
        body = only_within(body, [
            (unit, -(-many // eights) * eights, many),
            (row_of + self.lane % OCTET, self.rows * tile.rows, rows),
        ])  # fmt: skip
        whole = seq(
            Branch(Eq(self.lane % QUADS, index(0)), names.nest(own, told), NOTHING),
            names.nest({**own, "j": self.wide // OCTET, "pair": 2}, left, "vectorized"),
            For(e, index(-(-many // eights)), "serial", body),
        )
        return allocated(whole, (mixes, sums, tops))

    def _element_of(
        self, out: Buffer, held: tuple[Buffer, Buffer, Buffer], down: Scalar, across: Scalar
    ) -> Stmt:
        """What follows of the triples of all parts, in a row of a square."""
        of, names, parts = self.of, self.names, self.tile.parts
        tops, sums, mixes = held
        inside, zero = self.lane % OCTET, index(0)
        row = down * OCTET + inside
        share = names.buffer("share", (parts,), f32, "local")
        greatest, whole, inverse = (
            names.buffer(word, (1,), f32, "local") for word in ("most", "whole", "inverse")
        )
        every = [index(part) for part in range(parts)]

        def shared(part: Scalar) -> Stmt:
            less = power((tops[part, row] - greatest[zero]) * self.scale)
            return Store(share, (part,), Select(Eq(greatest[zero], LEAST), Lit(0.0, f32), less))

        def element(c: Scalar, v: Scalar) -> Stmt:
            own = c * near + v
            mix = [mixes[part, down, across, inside, own] * share[part] for part in every]
            triple = (greatest[zero], whole[zero], reduce(Add, mix))
            reach, at = -(-columns // OCTET) * OCTET, (self.first + row, across * OCTET + own)
            return self._written(out, at, reach, triple, inverse[zero])

        columns = of.size(of.column)
        near = vector_lanes(columns, of.out.out.dtype.bytes)
        body = seq(
            Store(greatest, (zero,), reduce(Max, [tops[part, row] for part in every])),
            *[shared(part) for part in every],
            Store(whole, (zero,), reduce(Add, [sums[part, row] * share[part] for part in every])),
            Store(inverse, (zero,), Lit(1.0, f32) / whole[zero]),
            names.nest({"c": OCTET // near, "v": near}, element, "vectorized"),
        )
        return allocated(body, (inverse, whole, greatest, share))
