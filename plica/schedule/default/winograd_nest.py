"""The loops of a Winograd convolution, as they are to run.

    room    the data with its border, channels last                     room[h, w, c]
    for blocks of rows of tiles:
        data      (B x Bᵀ) of each tile, lanes over channels            data[p, c, tile, lane]
        product   a matrix product for each of the places p of a tile   product[p, o, tile, lane]
        out       f(A (product) Aᵀ) of some tiles, lanes over outputs, then over a row

Where several cores share the blocks, each has `data` and `product` of its own, which stay in its
cache; where there are fewer blocks than cores, they share each of the three steps.  A tile is in
registers from when it is read until it is transformed.  Where lanes change from one axis to
another, a square of elements is turned there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.analysis.enclosing import simple
from plica.core.binding import substitute
from plica.core.term import Term
from plica.ir.loop.scalar import Add, Buffer, Lit, Load, Lt, Min, Mul, Scalar, ScalarVar, index
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages, with_element
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.op.winograd import Matrix
from plica.ir.type.dim import known
from plica.schedule.default.transform import products
from plica.schedule.default.winograd_plan import WinogradPlan, WinogradShape

LINE: Final = 64
"""Bytes that come from memory together."""

WRITTEN: Final = 32
"""Multiply-adds in the text of the innermost loop, about."""


class WinogradWriter:
    """Writes the kernel: names in use, and the buffers."""

    def __init__(  # what was found, and what to do about it
        self,
        whole: Stages,
        fold: Each,
        epilogue: Each | None,
        of: WinogradShape,
        plan: WinogradPlan,
    ) -> None:
        self.whole, self.fold, self.epilogue, self.of, self.plan = whole, fold, epilogue, of, plan
        self.names = Names(whole)
        span = of.of.span
        down, across = of.tiles
        self.count = plan.rows * across
        self.room = self.buffer("room", down * of.of.size + 2, across * of.of.size + 2, of.channels)
        own = (plan.teams,) if plan.teams > 1 else ()
        self.data = self.buffer(
            "data", *own, span**2, of.channels // plan.inner, self.count, plan.inner
        )
        self.product = self.buffer(
            "product", *own, span**2, of.outputs // plan.outer, self.count, plan.outer
        )
        self.team: tuple[Scalar, ...] = ()
        self.out = whole.result
        blocks = index(of.outputs // plan.outer)
        self.weight = Buffer(
            self.names.name("packed"),
            (of.weight.shape[0], blocks, of.weight.shape[1], index(plan.outer)),
            of.weight.dtype,
        )

    def buffer(self, like: str, *shape: int, scope: str = "global") -> Buffer:
        sizes = tuple([index(each) for each in shape])
        return Buffer(self.names.name(like), sizes, self.of.x.dtype, scope)

    @property
    def shared(self) -> LoopKind:
        """The kind of a loop whose iterations cores may share."""
        return "parallel" if self.plan.shares and not self.team else "serial"

    def formed(self) -> Stages:
        """All of it: the weight is packed, and the rest has the loops it should have."""
        of = self.of
        down, _ = of.tiles
        blocks = down // self.plan.rows

        def block(n: Scalar, b: Scalar) -> Stmt:
            return seq(self.transform(b), self.multiply(), self.finish(n, b))

        def image(n: Scalar) -> Stmt:
            copied = self.copy(n)
            if self.plan.teams == 1:
                return seq(copied, self.nest((blocks, "serial"), body=lambda b: block(n, b)))
            each = -(-blocks // self.plan.teams)

            def own(team: Scalar, at: Scalar) -> Stmt:
                b = team * each + at
                self.team = (team,)
                made = block(n, b)
                self.team = ()
                fits = each * self.plan.teams == blocks
                return made if fits else Branch(Lt(b, index(blocks)), made, NOTHING)

            return seq(copied, self.nest((self.plan.teams, "parallel"), (each, "serial"), body=own))

        body = self.nest((of.batch, "serial"), body=image)
        p, b, c, v = (self.names.var(each) for each in "pbcv")
        weight = Load(of.weight, (p, c, b * self.plan.outer + v))
        scratch = (self.room, self.data, self.product)
        both = (Each(self.weight, (p, b, c, v), weight), ExternStage((*scratch, self.out), body))
        return stages(self.whole.inputs, both, (*scratch, self.weight, self.out))

    def copy(self, n: Scalar) -> Stmt:
        """The data with its border, channels last: turned a square of elements at a time."""
        of, lanes = self.of, self.plan.inner
        height, width, channels = (known(each) or 0 for each in self.room.shape)
        (top, left), (rows, columns) = of.before, of.size
        many = _power(min(columns, self.plan.whole))
        square = self.buffer("square", lanes, self.plan.whole, scope="local")

        def zeros(height: int, width: int, y: Scalar | int, x: int) -> Stmt:
            if not height or not width:
                return NOTHING
            return self.nest(
                (height, "serial"), (width, "serial"), (channels // lanes, "serial"),
                (lanes, "vectorized"),
                body=lambda h, w, c, v: Store(
                    self.room, (h + y, w + x, c * lanes + v), Lit(0, of.x.dtype)
                ),
            )  # fmt: skip

        def turned(h: Scalar, c: Scalar, start: Scalar) -> Stmt:
            rows_ = self.nest(
                (lanes, "unrolled"), (many, "vectorized"),
                body=lambda k, v: Store(
                    square, (k, v), of.x[n, c * lanes + k, h, start + v]
                ),
            )  # fmt: skip
            columns_ = self.nest(
                (many, "unrolled"), (lanes, "vectorized"),
                body=lambda k, v: Store(
                    self.room, (h + top, start + k + left, c * lanes + v), square[v, k]
                ),
            )  # fmt: skip
            return Alloc(square, seq(rows_, columns_))

        def row(h: Scalar) -> Stmt:
            def part(c: Scalar) -> Stmt:
                return self.strips(columns, many, lambda start: turned(h, c, start))

            return seq(
                zeros(1, left, h + top, 0),
                self.nest((channels // lanes, "serial"), body=part),
                zeros(1, width - left - columns, h + top, left + columns),
            )

        return seq(
            zeros(top, width, 0, 0),
            self.nest((rows, self.shared), body=row),
            zeros(height - top - rows, width, top + rows, 0),
        )

    def strips(self, whole: int, many: int, body: Callable[[Scalar], Stmt]) -> Stmt:
        """So many at a time until the end; the last may overlap those before it."""
        last = index(whole - many)

        def part(at: Scalar) -> Stmt:
            return body(Min(at * many, last) if whole % many else at * many)

        return self.nest((-(-whole // many), "serial"), body=part)

    def nest(self, *levels: tuple[int, LoopKind], body: Callable[..., Stmt]) -> Stmt:
        """Loops, one in another."""
        vars_ = [self.names.var("ijkl"[at]) for at in range(len(levels))]
        made = body(*vars_)
        for var, (count, kind) in reversed(list(zip(vars_, levels, strict=True))):
            made = For(var, index(count), kind, made)
        return made

    def transform(self, b: Scalar) -> Stmt:
        """The tiles of a block, each in two steps: columns first, then rows."""
        of, lanes = self.of, self.plan.inner
        span, size, (_, across) = of.of.span, of.of.size, of.tiles
        half = self.buffer("half", span, span, lanes, scope="local")

        def tile(r: Scalar, t: Scalar, c: Scalar) -> Stmt:
            top, left = (b * self.plan.rows + r) * size, t * size

            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.data, lanes,
                    lambda k, v: self.room[simple(top + k), left + column, c * lanes + v],
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.data, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(
                        self.data, (*self.team, a * span + q, c, r * across + t, v), value
                    ),
                )  # fmt: skip

            return Alloc(half, self.both(span, columns, span, rows))

        return self.nest(
            (self.plan.rows, self.shared), (across, "serial"), (of.channels // lanes, "serial"),
            body=tile,
        )  # fmt: skip

    def multiply(self) -> Stmt:
        """A product of matrices for each place of a tile."""
        of, plan, tile = self.of, self.plan, self.plan.tile
        total = self.buffer("total", tile.steps, tile.vectors, plan.outer, scope="local")
        many = tile.steps * tile.vectors
        most = [each for each in (8, 4, 2) if plan.inner % each == 0 and each * many <= WRITTEN]
        factor = max(most, default=1)
        sums: list[tuple[int, LoopKind]] = [
            (tile.steps, "unrolled"), (tile.vectors, "unrolled"), (plan.outer, "vectorized"),
        ]  # fmt: skip

        def one(p: Scalar, g: Scalar, first: Scalar) -> Stmt:
            def terms(outer: Scalar, inner: Scalar, u: Scalar) -> Stmt:
                def step(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                    at = inner * factor + u
                    weight = self.weight[p, g * tile.vectors + m, outer * plan.inner + at, v]
                    place = (*self.team, p, outer, first + s, at)
                    times = Mul(Load(self.data, place), weight)
                    return Store(total, (s, m, v), Add(total[s, m, v], times))

                return self.nest(*sums, body=step)

            def kept(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                place = (*self.team, p, g * tile.vectors + m, first + s, v)
                return Store(self.product, place, total[s, m, v])

            start = self.nest(
                *sums, body=lambda s, m, v: Store(total, (s, m, v), Lit(0, total.dtype))
            )
            summed = self.nest(
                (of.channels // plan.inner, "serial"), (plan.inner // factor, "serial"),
                (factor, "unrolled"),
                body=terms,
            )  # fmt: skip
            return Alloc(total, seq(start, self.fetching(summed), self.nest(*sums, body=kept)))

        groups = of.outputs // plan.outer // tile.vectors
        return self.nest(
            (of.of.span**2, self.shared), (groups, "serial"),
            body=lambda p, g: self.strips(self.count, tile.steps, lambda at: one(p, g, at)),
        )  # fmt: skip

    def fetching(self, sums: Stmt) -> Stmt:
        """The loop over channels, in which each pass fetches its share of the next weights."""
        plan, passes = self.plan, -(-self.count // self.plan.tile.steps)
        if not plan.fetches or passes < 2 or not isinstance(sums, For):
            return sums
        ahead = self.of.channels * plan.tile.vectors * plan.outer
        lines = -(
            -ahead * self.of.x.dtype.bytes // LINE // passes // (self.of.channels // plan.inner)
        )
        notes = (("fetch_next", (ahead, passes, lines)),)
        return For(sums.var, sums.extent, sums.kind, sums.body, notes)

    def finish(self, n: Scalar, b: Scalar) -> Stmt:
        """The results of a block, some tiles of a row at a time, and what is done to each."""
        of, lanes = self.of, self.plan.outer
        span, size, (_, across) = of.of.span, of.of.size, of.tiles
        tiles = _power(min(across, max(1, self.plan.whole // size)))
        half = self.buffer("half", size, span, lanes, scope="local")
        square = self.buffer("square", size, tiles * size, self.plan.whole, scope="local")

        def tile(r: Scalar, t: Scalar, o: Scalar, at: Scalar) -> Stmt:
            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.result, lanes,
                    lambda k, v: Load(
                        self.product, (*self.team, k * span + column, o, r * across + t, v)
                    ),
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.result, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(square, (a, at * size + q, v), value),
                )  # fmt: skip

            return Alloc(half, self.both(span, columns, size, rows))

        def several(r: Scalar, start: Scalar, o: Scalar) -> Stmt:
            top, left = (b * self.plan.rows + r) * size, start * size

            def result(a: Scalar, lane: Scalar, v: Scalar) -> Stmt:
                place = (n, o * lanes + lane, top + a, left + v)
                return self.inside(place, self.stored(place, square[a, v, lane]))

            made = self.nest((tiles, "serial"), body=lambda at: tile(r, start + at, o, at))
            kept = self.nest(
                (size, "unrolled"), (lanes, "unrolled"), (tiles * size, "vectorized"), body=result
            )
            return Alloc(square, seq(made, kept))

        def row(r: Scalar) -> Stmt:
            def part(start: Scalar) -> Stmt:
                return self.nest(
                    (of.outputs // lanes, "serial"), body=lambda o: several(r, start, o)
                )

            return self.strips(across, tiles, part)

        return self.nest((self.plan.rows, self.shared), body=row)

    def stored(self, place: tuple[Scalar, ...], value: Scalar) -> Stmt:
        """A result at its place in the tensor that was to be computed."""
        if self.epilogue is None:
            return Store(self.out, place, value)
        (read,) = [load for load in loads(self.epilogue.value) if load.buffer is self.fold.out]
        at: dict[Term, Term] = {
            axis: there
            for axis, there in zip(read.indices, place, strict=True)
            if isinstance(axis, ScalarVar)
        }
        whole = with_element(self.epilogue.value, self.fold.out, value)
        there = [at.get(axis, index(0)) for axis in self.epilogue.axes]
        return Store(self.out, tuple(there), substitute(whole, at))  # type: ignore[arg-type]  # scalars give scalars

    def inside(self, place: tuple[Scalar, ...], stmt: Stmt) -> Stmt:
        """A statement for the places of a tile that are in the result."""
        of = self.of
        for at, size, tiles in zip(place[-1:1:-1], of.result[::-1], of.tiles[::-1], strict=True):
            if tiles * of.of.size > size:
                stmt = Branch(Lt(at, index(size)), stmt, NOTHING)
        return stmt

    def both(
        self, first: int, one: Callable[[Scalar], Stmt], second: int, two: Callable[[Scalar], Stmt]
    ) -> Stmt:
        return seq(
            self.nest((first, "unrolled"), body=one), self.nest((second, "unrolled"), body=two)
        )

    def rows_of(
        self,
        matrix: Matrix,
        lanes: int,
        read: Callable[[Scalar, Scalar], Scalar],
        store: Callable[[int, Scalar, Scalar], Stmt],
    ) -> Stmt:
        """A matrix times a column of vectors: one loop over lanes for each of its rows."""
        made = []
        for number in range(len(matrix)):

            def lane(v: Scalar, number: int = number) -> Stmt:
                values = [read(index(k), v) for k in range(len(matrix[0]))]
                return store(number, v, products(matrix, values)[number])

            made.append(self.nest((lanes, "vectorized"), body=lane))
        return seq(*made)


def _power(most: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << most.bit_length() - 1
