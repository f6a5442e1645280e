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
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Eq,
    Intrinsic,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages
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
    seq,
)
from plica.ir.type.dtype import DType, f32
from plica.schedule.default.gpu.attention_chain import LEAST, Chain, seen_keys
from plica.schedule.default.gpu.tensor_core_meaning import OCTET, QUADS, mma
from plica.schedule.default.gpu.warp_meaning import row_max, row_power, row_sum, warp_mma

LANES: Final = 32
"""Threads of a warp."""

STEP: Final = 16
"""Terms of two bytes that tensor cores multiply at once."""


@frozen
class AttentionTile:
    """Warps of a block, squares of 16 rows of each, and keys of a slice."""

    warps: int = 4
    high: int = 2
    keys: int = 64

    @property
    def rows(self) -> int:
        return self.warps * self.high * STEP


Element: TypeAlias = Callable[[Scalar, Scalar], Scalar]
"""An element of a side, by its row and its column in a tile."""


class TileNames(Names):
    """Names for loops and buffers of a tile."""

    def buffer(self, like: str, shape: Sequence[int], dtype: DType, scope: str) -> Buffer:
        return Buffer(self.name(like), tuple(map(index, shape)), dtype, scope)


def nest(
    names: Names,
    axes: Mapping[str, int],
    body: Callable[..., Stmt],
    kind: LoopKind = "serial",
    around: LoopKind = "serial",
) -> Stmt:
    """A nest of loops; the last is of a kind, those around it of another."""
    own = [names.var(word) for word in axes]
    whole = body(*own)
    for number, (var, size) in enumerate(reversed([*zip(own, axes.values(), strict=True)])):
        whole = For(var, index(size), kind if number == 0 else around, whole)
    return whole


def region_of(of: Buffer, starts: Mapping[int, Scalar], extents: Mapping[int, int]) -> Region:
    """A region that has all of a buffer but along some axes."""
    begin = [starts.get(at, index(0)) for at in range(len(of.shape))]
    count = [index(extents[at]) if at in extents else size for at, size in enumerate(of.shape)]
    return Region(of, tuple(begin), tuple(count))


def _term(of: Term) -> Scalar:
    assert isinstance(of, Scalar)
    return of


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def attention_intrinsics(
    tile: AttentionTile, columns: int, dtype: DType
) -> tuple[TensorIntrinsic, ...]:
    """What a tile whose values have so many columns asks of the threads of a warp."""
    high, keys = tile.high, tile.keys // OCTET
    return (
        scores_mma(high, keys, dtype),
        row_max(high, keys),
        row_power(high, keys),
        row_sum(high),
        warp_mma(high, columns // OCTET, dtype),
    )


def scores_mma(high: int, keys: int, dtype: DType) -> TensorIntrinsic:
    """Products of a tile of queries and keys: rows of both are short."""
    return mma(high, keys, (True, True), dtype, few=dtype is f32)


def attention_tiles(of: Chain, tile: AttentionTile) -> Stages:
    """The stages as statements of threads, in tiles of some warps."""
    return AttentionWriter(of, tile).stages()


class AttentionWriter:
    """Writes the statements; knows the names, and where a thread is."""

    step = STEP
    """Of how many columns there are multiples."""

    def __init__(self, of: Chain, tile: AttentionTile, names: TileNames | None = None) -> None:
        self.of, self.tile = of, tile
        self.octet = 16 // of.dtype.bytes  # elements that are moved at once
        self.terms = 2 * self.octet  # and that tensor cores multiply at once
        self.names = TileNames(of.of) if names is None else names
        self.deep, self.wide = (_up(of.size(axis), self.step) for axis in (of.depth, of.column))
        self.warp, self.lane = (self.names.var(word) for word in ("w", "t"))
        self.rows = -(-of.size(of.row) // tile.rows)
        self.slices = -(-of.size(of.key) // tile.keys)
        self.scale, self.score = _factored(of.score)
        bounds = seen_keys(of)
        number, self.lots, self.blocks = self._grid()
        # The last rows have most to do where keys after them are not seen: they begin first.
        self.first = (number if bounds[1] is None else self.rows - 1 - number) * tile.rows
        self.begin, self.count = self._span(*bounds)

    def _grid(self) -> tuple[Scalar, dict[Term, Term], list[tuple[ScalarVar, int, LoopKind]]]:
        """Which rows and lots a block has, and the loops over blocks."""
        of, block = self.of, self.names.var("b")
        lots: dict[Term, Term] = {}
        lot: Scalar = block // self.rows
        for axis in reversed(of.batch):
            lots[axis] = lot % of.size(axis)
            lot = lot // of.size(axis)
        blocks = prod(of.size(axis) for axis in of.batch) * self.rows
        return block % self.rows, lots, [(block, blocks, "blockIdx.x")]

    def _span(self, below: int | None, above: int | None) -> tuple[Scalar, Scalar]:
        """The first slice that a block looks at, and how many."""
        keys, begin, end = self.tile.keys, index(0), index(self.slices)
        if below is not None:
            begin = Min(Max((self.first + below) // keys, index(0)), index(self.slices - 1))
        if above is not None:
            end = Min((self.first + (self.tile.rows - 1 + above)) // keys + 1, end)
        return begin, end if below is None and above is None else Max(end - begin, index(1))

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
        for each in (total, sums, top, mixed, queries):
            whole = Alloc(each, whole)
        return whole

    def _quad(self) -> Scalar:
        return self.lane // QUADS * QUADS

    def _row(self, i: Scalar, half: Scalar) -> Scalar:
        """Which query a thread has."""
        own = (self.warp * self.tile.high + i) * STEP + half * OCTET + self.lane // QUADS
        return self.first + own

    # --- sides ----------------------------------------------------------------------------------

    def _shared(self, like: str) -> Buffer:
        """Memory of a block for a side, 8 x 8 elements together."""
        tile, keys, wide = self.tile, self.tile.keys // OCTET, self.wide // OCTET
        shapes = {
            "left": (self.deep // self.terms, tile.warps, tile.high, 2, 2, OCTET, self.octet),
            "right": (self.deep // self.terms, keys, 2, QUADS, 2, self.octet),
            "value": (tile.keys // self.terms, wide, 2, self.octet, QUADS, 2),
        }
        return self.names.buffer(like, shapes[like], self.of.dtype, "shared")

    def _fetches(self, to: Buffer, element: Element, rows: int, columns: int) -> tuple[Stmt, ...]:
        """Rows of octets copied by all threads: eight threads write what lies together."""
        across = columns // self.octet
        many, each = rows // OCTET * across, self.tile.warps * LANES // OCTET
        row = self.lane % OCTET

        def octet(turn: Scalar, v: Scalar) -> Stmt:
            unit = (turn * self.tile.warps + self.warp) * (LANES // OCTET) + self.lane // OCTET
            down, along = unit // across, unit % across
            place = element(down * OCTET + row, along * self.octet + v)
            return Store(to, self._place(to, down, row, along, v), place)

        turns, v = self.names.var("n"), self.names.var("v")
        inner: Stmt = For(v, index(self.octet), "vectorized", octet(turns, v))
        if many % each:
            unit = (turns * self.tile.warps + self.warp) * (LANES // OCTET) + self.lane // OCTET
            inner = Branch(Lt(unit, index(many)), inner, NOTHING)
        return (For(turns, index(-(-many // each)), "serial", inner),)

    def _place(
        self, to: Buffer, down: Scalar, row: Scalar, along: Scalar, v: Scalar
    ) -> tuple[Scalar, ...]:
        """Where an element lies: 8 x 8 elements together, as tensor cores read them."""
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
        """An element of a side, 0 beyond what it has."""
        told: dict[Term, Term] = {**self.lots, **{axis: place for axis, (place, _) in at.items()}}
        found = _term(substitute(of, told))
        guards: list[Scalar] = []
        for axis, (place, reach) in at.items():
            if reach > self.of.size(axis):
                guards.append(Lt(place, index(self.of.size(axis))))
        return Select(reduce(And, guards), found, Lit(0, dtype_of(of))) if guards else found

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
                Store(less, at, _power(top[at] * self.scale - base[at])),
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
        for each in (scale, less, base, most, part):
            body = Alloc(each, body)
        return body

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

            score = _term(substitute(map_bottom_up(told, self.score), {**self.lots, **places}))
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

            value = _term(substitute(map_bottom_up(told, of.out.value), there))
            places = tuple([_term(there[axis]) for axis in of.out.axes])
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


def _power(of: Scalar) -> Scalar:
    """A power of two: what machines have an instruction for."""
    return Intrinsic("exp2", (of,))


def _factored(of: Scalar) -> tuple[float, Scalar]:
    """Scores in units of which two to the power is taken: a positive factor, and what it is of."""
    whole, unit = of, math.log2(math.e)
    conditions: list[Scalar] = []
    while isinstance(of, Select) and of.orelse is LEAST:
        conditions.append(of.condition)
        of = of.then
    if not isinstance(of, Mul) or not isinstance(of.right, Lit) or not of.right.value > 0:
        return unit, whole
    scale, of = float(of.right.value) * unit, of.left
    for each in reversed(conditions):
        of = Select(each, of, LEAST)
    return scale, of
