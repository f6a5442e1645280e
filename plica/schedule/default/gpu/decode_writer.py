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
under way; scores of a part are in shared memory, and nothing but triples of parts is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop.scalar import (
    Add,
    And,
    Buffer,
    Eq,
    Intrinsic,
    Lit,
    Load,
    Lt,
    Max,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Invoke, LoopKind, Stmt, Store, seq
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu.attention_chain import LEAST
from plica.schedule.default.gpu.attention_tile import region_of
from plica.schedule.default.gpu.decode_chain import DecodeChain
from plica.schedule.default.gpu.decode_tile import LANES, WARPS, DecodeTile, KeyLanes
from plica.schedule.default.gpu.warp_meaning import lanes_max, lanes_sum

JOINED: Final = 16
"""Parts whose triples a thread reads at once."""

ZERO: Final = Lit(0.0, f32)


def decode_tiles(of: DecodeChain, tile: DecodeTile) -> Stages:
    """The stages as statements of threads: parts of the keys, and what joins them."""
    return _DecodeWriter(of, tile).stages()


class _DecodeWriter:
    """Writes the statements; knows the names."""

    def __init__(self, of: DecodeChain, tile: DecodeTile) -> None:
        self.of, self.tile, self.names = of, tile, Names(of.of)
        self.count = of.size(*of.rows)
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
        self.lots = self._digits(self.lot, of.lots)

    def stages(self) -> Stages:
        """Both launches; one where there is one part."""
        body = self._block()
        for var, size, kind in (
            (self.lane, LANES, "threadIdx.x"), (self.warp, WARPS, "threadIdx.y"),
            (self.block, self.many * self.chunks * self.parts, "blockIdx.x"),
        ):  # fmt: skip
            body = For(var, index(size), kind, body)  # type: ignore[arg-type]  # kinds of loops
        inputs = self.of.of.inputs
        if self.parts == 1:
            return stages(inputs, (ExternStage((self.out,), body),))
        first = ExternStage((self.tops, self.sums, self.mixes), body)
        return stages(inputs, (first, ExternStage((self.out,), self._joined())), (self.out,))

    # --- words ----------------------------------------------------------------------------------

    def _digits(self, of: Scalar, axes: tuple[ScalarVar, ...]) -> dict[Term, Term]:
        """Axes of which a number is the place."""
        found: dict[Term, Term] = {}
        for number, axis in enumerate(reversed(axes)):
            first = number == len(axes) - 1
            found[axis] = of if first else of % self.of.size(axis)
            of = of // self.of.size(axis)
        return found

    def _buffer(self, like: str, shape: tuple[int, ...], scope: str) -> Buffer:
        return Buffer(self.names.name(like), tuple(map(index, shape)), f32, scope)

    def _each(
        self, axes: Mapping[str, int], body: Callable[..., Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        """A nest of loops that are written out; the last is of a kind."""
        own = [self.names.var(word) for word in axes]
        whole = body(*own)
        for number, (var, size) in enumerate(reversed([*zip(own, axes.values(), strict=True)])):
            whole = For(var, index(size), kind if number == 0 else "unrolled", whole)
        return whole

    def _element(
        self, of: Scalar, at: Mapping[Term, Term], guards: list[tuple[Scalar, int, int]]
    ) -> Scalar:
        """An element of a side; 0 where a place that reaches so far is beyond what there is."""
        found = substitute(of, at)
        tests: list[Scalar] = [Lt(at, index(size)) for at, reach, size in guards if reach > size]
        zero = Lit(0, dtype_of(of))
        return Select(reduce(And, tests), found, zero) if tests else found

    def _row(self, r: Scalar) -> Scalar:
        return self.first + r

    def _key(self, lanes: KeyLanes, turn: Scalar, u: Scalar) -> Scalar:
        """Which key of its part a thread reads."""
        beside = LANES // lanes.across
        group = self.warp * beside + self.lane // lanes.across
        return (turn * self.tile.ahead + u) * lanes.beside + group

    def _unit(self, lanes: KeyLanes, c: Scalar) -> Scalar:
        """Which neighbours of a row a thread has."""
        return c * lanes.across + self.lane % lanes.across

    # --- a part of the keys ---------------------------------------------------------------------

    def _block(self) -> Stmt:
        tile, rows = self.tile, self.tile.rows
        scores = self._buffer("scores", (rows, tile.keys), "shared")
        top = self._buffer("top", (rows,), "local")
        held = self._buffer("held", (LANES, rows), "warp")
        turns, n = -(-tile.keys // LANES), self.names.var("n")

        def greatest(r: Scalar) -> Stmt:
            place = n * LANES + self.lane
            found: Scalar = scores[r, place]
            if tile.keys % LANES:
                found = Select(Lt(place, index(tile.keys)), found, LEAST)
            return Store(held, (self.lane, r), Max(held[self.lane, r], found))

        whole = seq(
            self._scored(scores),
            self._each({"r": rows}, lambda r: seq(
                Store(held, (self.lane, r), LEAST), Store(top, (r,), LEAST))),
            For(n, index(turns), "unrolled", self._each({"r": rows}, greatest)),
            Invoke(lanes_max(LANES, rows).name, (region_of(held, {}, {}), region_of(top, {}, {}))),
            self._mixed(scores, top),
        )  # fmt: skip
        for each in (held, top, scores):
            whole = Alloc(each, whole)
        return whole

    def _scored(self, scores: Buffer) -> Stmt:
        """The scores of a part, in shared memory."""
        of, tile, lanes = self.of, self.tile, self.tile.right
        rows, ahead = tile.rows, tile.ahead
        query = self._buffer("query", (rows, lanes.turns, lanes.near), "local")
        keys = self._buffer("keys", (ahead, lanes.turns, lanes.near), "local")
        products = self._buffer("products", (LANES, ahead * rows), "warp")
        totals = self._buffer("totals", (ahead * rows,), "local")
        units = of.size(of.depth) // lanes.near
        turn = self.names.var("n")

        def asked(r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            unit = self._unit(lanes, c)
            at = {**self.lots, **self._digits(self._row(r), of.rows),
                  of.depth: unit * lanes.near + v}  # fmt: skip
            guards = [(unit, lanes.across * lanes.turns, units),
                      (self._row(r), self.chunks * rows, self.count)]  # fmt: skip
            return Store(query, (r, c, v), self._element(of.left, at, guards))

        def fetched(u: Scalar, c: Scalar, v: Scalar) -> Stmt:
            unit, key = self._unit(lanes, c), self.part * tile.keys + self._key(lanes, turn, u)
            at = {**self.lots, of.key: key, of.depth: unit * lanes.near + v}
            return Store(
                keys, (u, c, v), self._element(of.right, at, self._beyond(lanes, unit, units, key))
            )

        def product(u: Scalar, r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            at = (self.lane, u * rows + r)
            return Store(products, at, products[at] + query[r, c, v] * keys[u, c, v])

        def kept(u: Scalar, r: Scalar) -> Stmt:
            here = self._key(lanes, turn, u)
            return Store(scores, (r, here), self._score(totals[u * rows + r], r, here))

        own = {"u": ahead, "r": rows}
        deep = {"c": lanes.turns, "v": lanes.near}
        step = seq(
            self._each({"u": ahead, **deep}, fetched, "vectorized"),
            self._each(own, lambda u, r: seq(
                Store(products, (self.lane, u * rows + r), ZERO),
                Store(totals, (u * rows + r,), ZERO))),
            self._each({**own, **deep}, product),
            Invoke(lanes_sum(lanes.across, ahead * rows).name, (
                region_of(products, {0: self.lane // lanes.across * lanes.across},
                          {0: lanes.across}),
                region_of(totals, {}, {}))),
            Branch(Eq(self.lane % lanes.across, index(0)), self._each(own, kept), NOTHING),
        )  # fmt: skip
        for each in (totals, products, keys):
            step = Alloc(each, step)
        turns = tile.keys // (ahead * lanes.beside)
        asks = self._each({"r": rows, **deep}, asked, "vectorized")
        return Alloc(query, seq(asks, For(turn, index(turns), "serial", step)))

    def _beyond(
        self, lanes: KeyLanes, unit: Scalar, units: int, key: Scalar
    ) -> list[tuple[Scalar, int, int]]:
        """How far neighbours and keys reach, and how far they go."""
        return [(unit, lanes.across * lanes.turns, units),
                (key, self.parts * self.tile.keys, self.of.size(self.of.key))]  # fmt: skip

    def _score(self, product: Scalar, r: Scalar, here: Scalar) -> Scalar:
        """The score of a product; nothing is as low as a key or a row that is none."""
        of, key, row = self.of, self.part * self.tile.keys + here, self._row(r)
        places: dict[Term, Term] = {**self.lots, **self._digits(row, of.rows), of.key: key}

        def told(node: Term) -> Term:
            return product if isinstance(node, Load) and node.buffer is of.held else node

        score = substitute(map_bottom_up(told, of.score), places)
        tests: list[Scalar] = [
            Lt(place, index(size))
            for place, reach, size in (
                (key, self.parts * self.tile.keys, of.size(of.key)),
                (row, self.chunks * self.tile.rows, self.count),
            )
            if reach > size
        ]
        return Select(reduce(And, tests), score, LEAST) if tests else score

    def _mixed(self, scores: Buffer, top: Buffer) -> Stmt:
        """The weighted sum of a part, and what is written of it."""
        of, tile, lanes = self.of, self.tile, self.tile.values
        rows, ahead, groups = tile.rows, tile.ahead, lanes.beside
        deep = {"c": lanes.turns, "v": lanes.near}
        units = of.size(of.column) // lanes.near
        values = self._buffer("values", (ahead, lanes.turns, lanes.near), "local")
        sums = self._buffer("own", (rows, lanes.turns, lanes.near), "local")
        total = self._buffer("total", (rows,), "local")
        share = self._buffer("share", (ahead, rows), "local")
        mixed = self._buffer(
            "mixed", (groups, rows, lanes.turns, lanes.across, lanes.near), "shared"
        )
        totals = self._buffer("totals", (groups, rows), "shared")
        tops = self._buffer("greatest", (rows,), "shared")
        turn, e = self.names.var("n"), self.names.var("e")

        def fetched(u: Scalar, c: Scalar, v: Scalar) -> Stmt:
            unit, key = self._unit(lanes, c), self.part * tile.keys + self._key(lanes, turn, u)
            at = {**self.lots, of.key: key, of.column: unit * lanes.near + v}
            return Store(
                values,
                (u, c, v),
                self._element(of.values, at, self._beyond(lanes, unit, units, key)),
            )

        def weighed(u: Scalar, r: Scalar) -> Stmt:
            return seq(
                Store(share, (u, r), _share(scores[r, self._key(lanes, turn, u)], top[r])),
                Store(total, (r,), total[r] + share[u, r]),
            )

        def added(u: Scalar, r: Scalar, c: Scalar, v: Scalar) -> Stmt:
            return Store(sums, (r, c, v), sums[r, c, v] + share[u, r] * values[u, c, v])

        step = seq(
            self._each({"u": ahead, **deep}, fetched, "vectorized"),
            self._each({"u": ahead, "r": rows}, weighed),
            self._each({"u": ahead, "r": rows, **deep}, added),
        )  # fmt: skip
        step = Alloc(values, Alloc(share, step))
        group = self.warp * (LANES // lanes.across) + self.lane // lanes.across
        near = self.lane % lanes.across
        columns, threads = of.size(of.column), WARPS * LANES
        place = (e * WARPS + self.warp) * LANES + self.lane
        r, column = place // columns, place % columns
        unit = column // lanes.near
        spot = (r, unit // lanes.across, unit % lanes.across, column % lanes.near)
        every = [*map(index, range(groups))]
        both = (
            reduce(Add, [totals[g, r] for g in every]),
            reduce(Add, [mixed[g, *spot] for g in every]),
        )
        written = self._written(r, column, (tops[r], *both))
        if rows * columns % threads:
            written = Branch(Lt(place, index(rows * columns)), written, NOTHING)
        body = seq(
            self._each({"r": rows}, lambda r: Store(total, (r,), ZERO)),
            self._each({"r": rows, **deep}, lambda *at: Store(sums, at, ZERO)),
            For(turn, index(tile.keys // (ahead * lanes.beside)), "serial", step),
            self._each({"r": rows, **deep},
                       lambda r, c, v: Store(mixed, (group, r, c, near, v), sums[r, c, v]),
                       "vectorized"),
            Branch(Eq(near, index(0)),
                   self._each({"r": rows}, lambda r: Store(totals, (group, r), total[r])), NOTHING),
            Branch(And(Eq(self.warp, index(0)), Eq(self.lane, index(0))),
                   self._each({"r": rows}, lambda r: Store(tops, (r,), top[r])), NOTHING),
            For(e, index(-(-rows * columns // threads)), "serial", written),
        )  # fmt: skip
        for each in (tops, totals, mixed, total, sums):
            body = Alloc(each, body)
        return body

    def _written(self, r: Scalar, column: Scalar, triple: tuple[Scalar, ...]) -> Stmt:
        """What a block leaves of an element: the result, or the triple of its part."""
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
        if self.chunks * self.tile.rows > self.count:
            whole = Branch(Lt(row, index(self.count)), whole, NOTHING)
        return whole

    def _stored(
        self, lots: Mapping[Term, Term], row: Scalar, column: Scalar, triple: tuple[Scalar, ...]
    ) -> Stmt:
        """The epilogue of an element."""
        of = self.of
        names = of.fold.results
        at: dict[Term, Term] = {**lots, **self._digits(row, of.rows), of.column: column}
        (read,) = {load.indices for load in loads(of.out.value) if load.buffer in names}
        there: dict[Term, Term] = {axis: index(0) for axis in of.out.axes}
        for axis, place in zip(of.fold.axes, read, strict=True):
            if isinstance(place, ScalarVar):
                there[place] = substitute(of.places[axis], at)

        def told(node: Term) -> Term:
            if not isinstance(node, Load) or node.buffer not in names:
                return node
            return triple[names.index(node.buffer)]

        value = substitute(map_bottom_up(told, of.out.value), there)
        places = tuple([substitute(axis, there) for axis in of.out.axes])
        return Store(self.out, places, value)

    # --- the parts ------------------------------------------------------------------------------

    def _joined(self) -> Stmt:
        """Each element by a thread, from the triples of all parts."""
        columns = self.of.size(self.of.column)
        many = self.many * self.count * columns
        threads = WARPS * LANES
        block, thread = self.names.var("b"), self.names.var("t")
        place = block * threads + thread
        lot, row, column = (
            place // (self.count * columns), place // columns % self.count, place % columns
        )  # fmt: skip
        top, total, mixed = (self._buffer(word, (1,), "local") for word in ("m", "s", "a"))
        none = index(0)

        def parts(body: Callable[[Scalar, Scalar], Stmt]) -> Stmt:
            some = min(self.parts, JOINED)
            rounds = -(-self.parts // some)
            n, u = self.names.var("n"), self.names.var("u")
            part = n * some + u
            inner = body(part, Select(Lt(part, index(self.parts)), self.tops[lot, row, part], LEAST)
                         if rounds * some > self.parts else self.tops[lot, row, part])  # fmt: skip
            if rounds * some > self.parts:
                inner = Branch(Lt(part, index(self.parts)), inner, NOTHING)
            return For(n, index(rounds), "serial", For(u, index(some), "unrolled", inner))

        def rescaled(part: Scalar, its: Scalar) -> Stmt:
            share, at = self._buffer("share", (1,), "local"), (lot, row)
            return Alloc(share, seq(
                Store(share, (none,), _share(its, top[none])),
                Store(total, (none,), total[none] + self.sums[*at, part] * share[none]),
                Store(mixed, (none,), mixed[none] + self.mixes[*at, part, column] * share[none]),
            ))  # fmt: skip

        whole = seq(
            Store(top, (none,), LEAST), Store(total, (none,), ZERO), Store(mixed, (none,), ZERO),
            parts(lambda _, its: Store(top, (none,), Max(top[none], its))),
            parts(rescaled),
            self._stored(self._digits(lot, self.of.lots), row, column,
                         (top[none], total[none], mixed[none])),
        )  # fmt: skip
        for each in (mixed, total, top):
            whole = Alloc(each, whole)
        blocks = -(-many // threads)
        if blocks * threads > many:
            whole = Branch(Lt(place, index(many)), whole, NOTHING)
        return For(block, index(blocks), "blockIdx.x",
                   For(thread, index(threads), "threadIdx.x", whole))  # fmt: skip


def _share(of: Scalar, top: Scalar) -> Scalar:
    """What a score counts beside the greatest; nothing where that is nothing."""
    return Select(Eq(top, LEAST), ZERO, Intrinsic("exp", (of - top,)))
