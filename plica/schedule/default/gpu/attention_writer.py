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

It is made of the stages of `plica.schedule.online_softmax`, and of nothing else: what reads the
sides, what the scores are and what the result is are terms of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Eq,
    Lit,
    Load,
    Lt,
    Mul,
    Scalar,
    ScalarVar,
    Select,
    index,
)
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Stages, loads, stages
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    Invoke,
    LoopKind,
    Region,
    Stmt,
    Store,
    allocated,
    seq,
)
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu.attention_chain import LEAST, Chain
from plica.schedule.default.gpu.attention_score import power
from plica.schedule.default.gpu.attention_side import AttentionSides, term
from plica.schedule.default.gpu.attention_tile import (
    LANES,
    STEP,
    AttentionTile,
    nest,
    region_of,
    scores_mma,
)
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS
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
        """What the threads of all blocks do."""
        threads: list[tuple[ScalarVar, int, LoopKind]] = [
            (self.lane, LANES, "threadIdx.x"), (self.warp, self.tile.warps, "threadIdx.y"),
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
            nest(names, {"i": high, "half": 2, "j": wide, "pair": 2},
                  lambda *at: Store(mixed, at, Lit(0.0, f32))),
            nest(names, {"i": high, "half": 2}, lambda *at: seq(
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

    def _row(self, i: Scalar, half: Scalar) -> Scalar:
        """Which query a thread has."""
        own = (self.warp * self.tile.high + i) * STEP + half * OCTET + self.lane // QUADS
        return self.first + own

    # --- slices ---------------------------------------------------------------------------------

    def _slices(self, queries: Buffer, mixed: Buffer, top: Buffer, sums: Buffer) -> Stmt:
        tile, names, of = self.tile, self.names, self.of
        turn = names.var("q")
        right, value = self._shared("right"), self._shared("value")
        reach = self.slices * tile.keys

        def key(row: Scalar, depth: Scalar) -> Scalar:
            at = {
                of.key: ((self.begin + turn) * tile.keys + row, reach),
                of.depth: (depth, self.deep),
            }
            return self._element(of.right, at)

        def weighed(row: Scalar, column: Scalar) -> Scalar:
            at = {
                of.key: ((self.begin + turn) * tile.keys + row, reach),
                of.column: (column, self.wide),
            }
            return self._element(of.values, at)

        copies = (
            *self._fetches(right, key, tile.keys, self.deep),
            *self._fetches(value, weighed, tile.keys, self.wide),
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
        """What is done with a slice of keys."""
        tile, names, lane = self.tile, self.names, self.lane
        high, keys, wide = tile.high, tile.keys // OCTET, self.wide // OCTET
        part = names.buffer("part", (LANES, high, 2, keys, 2), f32, "warp")
        most, base, less = (
            names.buffer(word, (high, 2), f32, "local") for word in ("most", "base", "less")
        )
        own = {"i": high, "half": 2, "j": keys, "pair": 2}
        rows = {"i": high, "half": 2}
        quad = region_of(part, {0: self._quad()}, {0: QUADS})
        mine, weighed = (region_of(each, {0: lane}, {0: 1}) for each in (part, sums))

        def lowered(i: Scalar, half: Scalar) -> Stmt:
            at = (i, half)
            none = Eq(most[at], LEAST)
            return seq(
                Store(base, at, Select(none, Lit(0.0, f32), most[at] * self.scale)),
                Store(less, at, power(top[at] * self.scale - base[at])),
                Store(top, at, most[at]),
                Store(sums, (lane, *at), sums[(lane, *at)] * less[at]),
            )

        scale = names.buffer("scale", (1,), f32, "local")
        body = seq(
            nest(names, own, lambda *at: Store(part, (lane, *at), Lit(0.0, f32))),
            self._products(sides, part),
            *self._scores(turn, part, own),
            nest(names, rows, lambda *at: Store(most, at, top[at])),
            Invoke(row_max(high, keys).name, (quad, region_of(most, {}, {}))),
            nest(names, rows, lowered),
            nest(names, {"i": high, "half": 2, "j": wide, "pair": 2},
                  lambda *at: Store(mixed, at, mixed[at] * less[at[0], at[1]])),
            Store(scale, (index(0),), Lit(self.scale, f32)),
            Invoke(row_power(high, keys).name,
                   (region_of(base, {}, {}), region_of(scale, {}, {}), mine, weighed)),
            self._mixed(sides[2], part, mixed),
        )  # fmt: skip
        return allocated(body, (scale, less, base, most, part))

    def _products(self, sides: tuple[Buffer, Buffer, Buffer], part: Buffer) -> Stmt:
        left, right, _ = sides
        step = self.names.var("s")
        multiply = scores_mma(self.tile.high, self.tile.keys // OCTET, self.of.dtype)
        one = region_of(left, {0: step, 1: self.warp, 5: self.lane // QUADS}, {0: 1, 1: 1, 5: 1})
        other = region_of(right, {0: step, 3: self.lane % QUADS}, {0: 1, 3: 1})
        mine = region_of(part, {0: self.lane}, {0: 1})
        return self._unrolled(step, self.deep // self.terms, multiply, (one, other, mine))

    def _mixed(self, value: Buffer, part: Buffer, mixed: Buffer) -> Stmt:
        step = self.names.var("s")
        multiply = warp_mma(self.tile.high, self.wide // OCTET, self.of.dtype)
        squares = self.terms // OCTET
        held = region_of(part, {0: self._quad(), 3: step * squares}, {0: QUADS, 3: squares})
        other = region_of(value, {0: step, 4: self.lane % QUADS}, {0: 1, 4: 1})
        return self._unrolled(
            step, self.tile.keys // self.terms, multiply, (held, other, region_of(mixed, {}, {}))
        )

    def _unrolled(
        self, step: ScalarVar, count: int, what: TensorIntrinsic, regions: tuple[Region, ...]
    ) -> Stmt:
        return For(step, index(count), "unrolled", Invoke(what.name, regions))

    def _scores(self, turn: ScalarVar, part: Buffer, own: Mapping[str, int]) -> tuple[Stmt, ...]:
        """The scores of products, but for their scale: nothing is as low as a key that is none."""
        of = self.of
        beyond = [
            (axis, reach)
            for axis, reach in (
                (of.key, self.slices * self.tile.keys), (of.row, self.rows * self.tile.rows),
            )
            if reach > of.size(axis)
        ]  # fmt: skip
        if not beyond and isinstance(self.score, Load) and self.score.buffer is of.held:
            return ()

        def scored(*at: ScalarVar) -> Stmt:
            i, half, j, pair = at
            key = (self.begin + turn) * self.tile.keys + j * OCTET + self.lane % QUADS * 2 + pair
            places: dict[Term, Scalar] = {of.row: self._row(i, half), of.key: key}
            mine = (self.lane, *at)

            def told(node: Term) -> Term:
                return part[mine] if isinstance(node, Load) and node.buffer is of.held else node

            score = term(substitute(map_bottom_up(told, self.score), {**self.lots, **places}))
            guards: list[Scalar] = [Lt(places[axis], index(of.size(axis))) for axis, _ in beyond]
            return Store(part, mine, Select(reduce(And, guards), score, LEAST) if guards else score)

        return (nest(self.names, own, scored),)

    # --- the result -----------------------------------------------------------------------------

    def _stored(self, out: Buffer, mixed: Buffer, top: Buffer, total: Buffer) -> Stmt:
        of = self.of
        triple = of.fold.results

        def element(i: Scalar, half: Scalar, j: Scalar, pair: Scalar) -> Stmt:
            row = self._row(i, half)
            column = j * OCTET + self.lane % QUADS * 2 + pair
            at: dict[Term, Term] = {**self.lots, of.row: row, of.column: column}
            (read,) = {load.indices for load in loads(of.out.value) if load.buffer in triple}
            there: dict[Term, Term] = {axis: index(0) for axis in of.out.axes}
            for axis, place in zip(of.fold.axes, read, strict=True):
                if isinstance(place, ScalarVar):
                    there[place] = at[axis]

            def told(node: Term) -> Term:
                if not isinstance(node, Load) or node.buffer not in triple:
                    return node
                number = triple.index(node.buffer)
                greatest = Mul(top[i, half], Lit(self.scale * math.log(2), f32))
                return (greatest, total[i, half], mixed[i, half, j, pair])[number]

            value = term(substitute(map_bottom_up(told, of.out.value), there))
            places = tuple([term(there[axis]) for axis in of.out.axes])
            whole: Stmt = Store(out, places, value)
            guards: list[Scalar] = [
                Lt(place, index(of.size(axis)))
                for axis, place, reach in (
                    (of.row, row, self.rows * self.tile.rows), (of.column, column, self.wide),
                )
                if reach > of.size(axis)
            ]  # fmt: skip
            return Branch(reduce(And, guards), whole, NOTHING) if guards else whole

        own = {"i": self.tile.high, "half": 2, "j": self.wide // OCTET, "pair": 2}
        return nest(self.names, own, element, "vectorized")
