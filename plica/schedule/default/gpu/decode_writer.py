"""Few rows to many keys in parts: each block folds a part of the keys, then the parts are joined.

    for lot, part in blocks:                        launch 1: a part of the keys
        s[r, k] = f(sum over d of q[r, d] * key[k, d])          neighbours by the threads of a warp
        m[r]    = max over k of s[r, k]
        t[r]    = sum over k of exp(s[r, k] - m[r])
        a[r, j] = sum over k of exp(s[r, k] - m[r]) * v[k, j]   each key by other threads
    for lot, r, j:                                  launch 2: the parts, rescaled
        y[r, j] = epilogue(max over p of m, sum over p of t * …, sum over p of a * …)

The law is that of `plica.schedule.online_softmax`: triples of parts are joined like those of keys.
Keys and values are read once for all rows of a lot, 16 bytes by a thread at a time, several of them
under way while others are multiplied; scores of a part are in shared memory, and nothing but
triples of parts is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

from attrs import frozen

from plica.core import Term, substitute
from plica.ir.loop import (
    NOTHING,
    Alloc,
    Branch,
    Buffer,
    ExternStage,
    For,
    Intrinsic,
    Lit,
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
from plica.ir.loop.scalar import Add, And, Eq, Max, Min
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import Invoke
from plica.ir.type import f32
from plica.schedule.default.gpu.attention_chain import LEAST, Chain
from plica.schedule.default.gpu.decode_tile import (
    FEW_ROWS,
    TOGETHER,
    WARPS,
    DecodeTile,
    KeyLanes,
    lanes_for,
)
from plica.schedule.default.gpu.machine import LANES
from plica.schedule.default.gpu.read_ahead import ReadAhead
from plica.schedule.default.gpu.thread_code import (
    Guard,
    ThreadNames,
    only_within,
    region_of,
    within,
)
from plica.schedule.default.gpu.warp_meaning import lanes_max, lanes_sum

ZERO: Final = Lit(0.0, f32)


@frozen(eq=False)
class Weighed:
    """Scores of some rows and what they weigh: keys of a part, or parts."""

    rows: int
    count: int
    lanes: KeyLanes
    ahead: int
    score: Callable[[Scalar, Scalar], Scalar]
    """The score of a row and a key."""
    one: Callable[[Scalar], Scalar] | None
    """How often a key counts, if not once."""
    values: Scalar
    """The contribution of a key at a column, over `column` and `places`."""
    column: ScalarVar
    places: Callable[[Scalar], Mapping[Term, Term]]
    """Where a key is."""
    guards: Callable[[Scalar], list[Guard]]
    """Keys that are none."""
    write: Callable[[Scalar, Scalar, tuple[Scalar, ...]], Stmt]
    """What becomes of a row and a column."""
    again: bool = False
    """Whether each thread computes the weights it needs, without waiting for others."""


def decode_tiles(of: Chain, tile: DecodeTile) -> Stages:
    """The stages as statements of threads: parts of the keys, and what joins them."""
    return DecodeWriter(of, tile, ThreadNames(of.of)).stages()


class DecodeWriter:
    """Writes the statements; knows the names."""

    def __init__(self, of: Chain, tile: DecodeTile, names: ThreadNames) -> None:
        self.of, self.tile, self.names = of, tile, names
        self.count = of.size(*of.rows)
        self.held = tile.rows  # rows that shared memory has room for
        self.chunks = -(-self.count // tile.rows)
        self.parts = -(-of.size(of.key) // tile.keys)
        self.many = of.size(*of.lots)
        self.lane, self.warp, self.block = (self.names.var(word) for word in ("t", "w", "b"))
        self.out = Buffer(self.names.name("out"), of.out.out.shape, of.out.out.dtype)
        shape = tuple(map(index, (self.many, self.count, self.parts)))
        self.tops, self.sums = (
            Buffer(self.names.name(word), shape, f32) for word in ("tops", "sums")
        )
        wide = (*shape, index(of.size(of.column)))
        self.mixes = Buffer(self.names.name("mixes"), wide, f32)
        block: Scalar = self.block
        self.part, block = block % self.parts, block // self.parts
        self.first, self.lot = block % self.chunks * tile.rows, block // self.chunks
        self.lots = self.of.digits(self.lot, of.lots)

    def stages(self) -> Stages:
        """Both launches, or one if there is one part."""
        body = self._launched(self._block(), self.block, self.many * self.chunks * self.parts)
        if self.parts == 1:
            return stages(self.of.of.inputs, (ExternStage((self.out,), body),))
        return self.joined(body)

    def joined(self, parts: Stmt) -> Stages:
        """What leaves a triple of each part, and what joins them."""
        first = ExternStage((self.tops, self.sums, self.mixes), parts)
        last = ExternStage((self.out,), self._joined())
        return stages(self.of.of.inputs, (first, last), (self.out,))

    # --- words ----------------------------------------------------------------------------------

    def _buffer(self, like: str, shape: tuple[int, ...], scope: str) -> Buffer:
        return self.names.buffer(like, shape, f32, scope)

    def _ahead(
        self,
        side: Scalar,
        axis: ScalarVar,
        by: tuple[KeyLanes, int],
        at: Callable[[Scalar], Mapping[Term, Term]],
        guards: Callable[[Scalar], list[Guard]] = lambda _: [],
    ) -> ReadAhead:
        """A side whose keys the threads of a block share, this many at a time."""
        lanes, ahead = by
        units = self.of.size(axis if axis in self.of.sizes else self.of.column) // lanes.near

        def key(step: Scalar, u: Scalar) -> Scalar:
            return self._key(lanes, ahead, step, u)

        return ReadAhead(
            self.names,
            side,
            axis,
            (ahead, lanes.turns, lanes.near),
            lambda step, u, c, v: {
                **at(key(step, u)), axis: self._unit(lanes, c) * lanes.near + v
            },
            lambda step, u, c: [
                (self._unit(lanes, c), lanes.across * lanes.turns, units), *guards(key(step, u))
            ],
        )  # fmt: skip

    def _row(self, r: Scalar) -> Scalar:
        return self.first + r

    def _key(self, lanes: KeyLanes, ahead: int, turn: Scalar, u: Scalar) -> Scalar:
        """Which key of its part a thread reads."""
        beside = LANES // lanes.across
        group = self.warp * beside + self.lane // lanes.across
        return (turn * ahead + u) * lanes.beside + group

    def _unit(self, lanes: KeyLanes, c: Scalar) -> Scalar:
        """Which neighbours of a row a thread has."""
        return c * lanes.across + self.lane % lanes.across

    # --- a part of the keys ---------------------------------------------------------------------

    def _block(self) -> Stmt:
        of, tile, lanes = self.of, self.tile, self.tile.values
        scores = self._buffer("scores", (self.held, tile.keys), "shared")
        weighed = Weighed(tile.rows, tile.keys, lanes, tile.ahead,
                          lambda r, here: scores[r, here], None, of.values, of.column,
                          self._held_at, lambda _: [], self._written,
                          again=tile.rows <= FEW_ROWS)  # fmt: skip
        return Alloc(scores, seq(self._scored(scores), self._weighed(weighed)))

    def _scored(self, scores: Buffer) -> Stmt:
        """The scores of a part, in shared memory."""
        of, tile, lanes = self.of, self.tile, self.tile.right
        rows, ahead = tile.rows, tile.ahead
        query = self._buffer("query", (rows, lanes.turns, lanes.near), "local")
        turn = self.names.var("n")
        keys = self._ahead(of.right, of.depth, (lanes, ahead), self._held_at)
        products = self._buffer("products", (LANES, ahead * rows), "warp")
        totals = self._buffer("totals", (ahead * rows,), "local")
        units = of.size(of.depth) // lanes.near

        def asked(r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            unit = self._unit(lanes, c)
            at = {**self.lots, **self.of.digits(self._row(r), of.rows),
                  of.depth: unit * lanes.near + v}  # fmt: skip
            guards = [(unit, lanes.across * lanes.turns, units),
                      (self._row(r), self.chunks * rows, self.count)]  # fmt: skip
            return Store(query, (r, c, v), within(substitute(of.left, at), guards))

        def product(u: Scalar, r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            at = (self.lane, u * rows + r)
            return Store(products, at, products[at] + query[r, c, v] * keys.value(turn, u, c, v))

        def kept(u: Scalar, r: Scalar) -> Stmt:
            here = self._key(lanes, ahead, turn, u)
            return Store(scores, (r, here), self._score(totals[u * rows + r], r, here))

        own = {"u": ahead, "r": rows}
        deep = {"c": lanes.turns, "v": lanes.near}
        step = seq(
            self.names.each(own, lambda u, r: seq(
                Store(products, (self.lane, u * rows + r), ZERO),
                Store(totals, (u * rows + r,), ZERO))),
            self.names.each({**own, **deep}, product),
            Invoke(lanes_sum(lanes.across, ahead * rows).name, (
                region_of(products, {0: self.lane // lanes.across * lanes.across},
                          {0: lanes.across}),
                region_of(totals, {}, {}))),
            Branch(Eq(self.lane % lanes.across, index(0)), self.names.each(own, kept), NOTHING),
        )  # fmt: skip
        step = allocated(step, (totals, products))
        asks = self.names.each({"r": rows, **deep}, asked, "vectorized")
        return Alloc(query, keys.over(turn, tile.keys // (ahead * lanes.beside), asks, step))

    def _held_at(self, here: Scalar) -> dict[Term, Term]:
        """Where a key of a part is."""
        return {**self.lots, self.of.key: self._inside(here)}

    def _inside(self, here: Scalar) -> Scalar:
        """The key at a place of a part, or the last one: its score and its share are none then.

        Without branches before loads, so that they overlap.
        """
        key, last = self.part * self.tile.keys + here, self.of.size(self.of.key)
        return key if self.parts * self.tile.keys <= last else Min(key, index(last - 1))

    def _score(self, product: Scalar, r: Scalar, here: Scalar) -> Scalar:
        """The score of a product; nothing is as low as a key or a row that is none."""
        of, key, row = self.of, self.part * self.tile.keys + here, self._row(r)
        places: dict[Term, Term] = {**self.lots, **self.of.digits(row, of.rows), of.key: key}
        score = of.scored(of.score, product, places)
        keys = (key, self.parts * self.tile.keys, of.size(of.key))
        return within(score, [keys, (row, self.chunks * self.tile.rows, self.count)], LEAST)

    def _weighed(self, of: Weighed) -> Stmt:
        """The greatest of some scores, the sum of their exponentials and a weighted sum."""
        rows, lane = of.rows, self.lane
        top = self._buffer("top", (rows,), "local")
        total = self._buffer("total", (rows,), "local")
        held, own = (self._buffer(word, (LANES, rows), "warp") for word in ("held", "own"))
        turns = -(-of.count // (WARPS * LANES))
        shares = self._buffer("shares", (rows, turns * WARPS * LANES), "shared")
        totals = self._buffer("totals", (WARPS, rows), "shared")
        tops = self._buffer("greatest", (rows,), "shared")
        n, m = self.names.var("n"), self.names.var("n")
        everyone = n * LANES + lane
        mine = (m * WARPS + self.warp) * LANES + lane
        reach = -(-of.count // LANES) * LANES
        beyond = [(mine, turns * WARPS * LANES, of.count)]

        def greatest(r: Scalar) -> Stmt:
            score = within(of.score(r, everyone), [(everyone, reach, of.count)], LEAST)
            return Store(held, (lane, r), Max(held[lane, r], score))

        def shared(r: Scalar) -> Stmt:
            score = within(of.score(r, mine), beyond, LEAST)
            weight = shares[r, mine]
            if of.one is not None:
                weight = within(of.one(mine), beyond, ZERO) * weight
            if of.again:
                return Store(own, (lane, r), own[lane, r] + _share(score, top[r]))
            return seq(
                Store(shares, (r, mine), _share(score, top[r])),
                Store(own, (lane, r), own[lane, r] + weight),
            )

        def told(r: Scalar) -> Stmt:
            return Store(totals, (self.warp, r), total[r])

        first = Eq(lane, index(0))
        body = seq(
            self.names.each({"r": rows}, lambda r: seq(
                Store(held, (lane, r), LEAST), Store(top, (r,), LEAST),
                Store(own, (lane, r), ZERO), Store(total, (r,), ZERO))),
            For(n, index(reach // LANES), "serial", self.names.each({"r": rows}, greatest)),
            Invoke(lanes_max(LANES, rows).name, (region_of(held, {}, {}), region_of(top, {}, {}))),
            For(m, index(turns), "serial", self.names.each({"r": rows}, shared)),
            Invoke(lanes_sum(LANES, rows).name, (region_of(own, {}, {}), region_of(total, {}, {}))),
            Branch(first, self.names.each({"r": rows}, told), NOTHING),
            Branch(And(Eq(self.warp, index(0)), first),
                   self.names.each({"r": rows}, lambda r: Store(tops, (r,), top[r])), NOTHING),
        )  # fmt: skip
        body = self._mixed(of, None if of.again else shares, top, lambda r: (
            tops[r], reduce(Add, [totals[index(w), r] for w in range(WARPS)])), body)  # fmt: skip
        return allocated(
            body, (tops, totals, *([] if of.again else [shares]), own, held, total, top)
        )

    def _mixed(
        self,
        of: Weighed,
        shares: Buffer | None,
        top: Buffer,
        told: Callable[[Scalar], tuple[Scalar, Scalar]],
        before: Stmt,
    ) -> Stmt:
        """The weighted sum and its store; the first values are loaded before."""
        rows, ahead, lanes, groups = of.rows, of.ahead, of.lanes, of.lanes.beside
        deep = {"c": lanes.turns, "v": lanes.near}
        sums = self._buffer("mine", (rows, lanes.turns, lanes.near), "local")
        mixed = self._buffer(
            "mixed", (groups, rows, lanes.turns, lanes.across, lanes.near), "shared"
        )
        turn, e = self.names.var("n"), self.names.var("e")
        values = self._ahead(of.values, of.column, (lanes, ahead), of.places, of.guards)

        def key(u: Scalar) -> Scalar:
            return self._key(lanes, ahead, turn, u)

        share = self._buffer("share", (ahead, rows), "local")

        def weighed(u: Scalar, r: Scalar) -> Stmt:
            own = _share(of.score(r, key(u)), top[r]) if shares is None else shares[r, key(u)]
            return Store(share, (u, r), own)

        def added(u: Scalar, r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            return Store(sums, (r, c, v), sums[r, c, v] + share[u, r] * values.value(turn, u, c, v))

        step = Alloc(share, seq(
            self.names.each({"u": ahead, "r": rows}, weighed),
            self.names.each({"u": ahead, "r": rows, **deep}, added),
        ))  # fmt: skip
        group = self.warp * (LANES // lanes.across) + self.lane // lanes.across
        near = self.lane % lanes.across
        columns, threads = self.of.size(self.of.column), WARPS * LANES
        place = (e * WARPS + self.warp) * LANES + self.lane
        r, column = place // columns, place % columns
        unit = column // lanes.near
        spot = (r, unit // lanes.across, unit % lanes.across, column % lanes.near)
        whole = reduce(Add, [mixed[index(g), *spot] for g in range(groups)])
        turns, many = -(-rows * columns // threads), rows * columns
        written = of.write(r, column, (*told(r), whole))
        written = only_within(written, [(place, turns * threads, many)])
        zeros = self.names.each({"r": rows, **deep}, lambda *at: Store(sums, at, ZERO))
        body = seq(
            values.over(turn, of.count // (ahead * lanes.beside), seq(before, zeros), step),
            self.names.each({"r": rows, **deep},
                       lambda r, c, v: Store(mixed, (group, r, c, near, v), sums[r, c, v]),
                       "vectorized"),
            For(e, index(turns), "serial", written),
        )  # fmt: skip
        return Alloc(mixed, Alloc(sums, body))

    def _written(self, r: Scalar, column: Scalar, triple: tuple[Scalar, ...]) -> Stmt:
        """The output of a block for an element: the result, or the triple of its part."""
        row = self._row(r)
        top, total, mixed = triple
        if self.parts == 1:
            whole = self._stored(self.lots, row, column, (top, total, mixed))
        else:
            at = (self.lot, row, self.part)
            whole = seq(
                Store(self.mixes, (*at, column), mixed),
                Branch(Eq(column, index(0)),
                       seq(Store(self.tops, at, top), Store(self.sums, at, total)), NOTHING),
            )  # fmt: skip
        return only_within(whole, [(row, self.chunks * self.tile.rows, self.count)])

    def _stored(
        self, lots: Mapping[Term, Term], row: Scalar, column: Scalar, triple: tuple[Scalar, ...]
    ) -> Stmt:
        """The epilogue of an element."""
        at = {**lots, **self.of.digits(row, self.of.rows), self.of.column: column}
        return self.of.stored(self.out, triple, at)

    # --- the parts ------------------------------------------------------------------------------

    def _joined(self) -> Stmt:
        """Triples of all parts, joined as those of keys are, a row by a block."""
        columns = self.of.size(self.of.column)
        lanes = lanes_for(next(n for n in (4, 2, 1) if columns % n == 0), columns)
        ahead = min(TOGETHER, -(-self.parts // lanes.beside))
        count = -(-self.parts // (lanes.beside * ahead)) * lanes.beside * ahead
        self.lane, self.warp = self.names.var("t"), self.names.var("w")
        block = self.names.var("b")
        lot, row = block // self.count, block % self.count

        def known(part: Scalar, value: Scalar, beyond: Scalar) -> Scalar:
            return within(value, [(part, count, self.parts)], beyond)

        column = self.names.var("j")
        var = self.names.var("p")
        lots = self.of.digits(lot, self.of.lots)
        body = self._weighed(Weighed(
            1, count, lanes, ahead,
            lambda _, part: known(part, self.tops[lot, row, part], LEAST),
            lambda part: known(part, self.sums[lot, row, part], ZERO),
            self.mixes[lot, row, var, column], column, lambda part: {var: part},
            lambda part: [(part, count, self.parts)],
            lambda _, column, triple: self._stored(lots, row, column, triple),
        ))  # fmt: skip
        return self._launched(body, block, self.many * self.count)

    def _launched(self, body: Stmt, block: ScalarVar, blocks: int) -> Stmt:
        """The code of the threads of some blocks."""
        body = For(self.warp, index(WARPS), "threadIdx.y",
                   For(self.lane, index(LANES), "threadIdx.x", body))  # fmt: skip
        return For(block, index(blocks), "blockIdx.x", body)


def _share(of: Scalar, top: Scalar) -> Scalar:
    """The weight of a score relative to the maximum; zero if that is minus infinity."""
    return Select(Eq(top, LEAST), ZERO, Intrinsic("exp", (of - top,)))
