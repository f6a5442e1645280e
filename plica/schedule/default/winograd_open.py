"""The loops of a Winograd convolution of images of an open size.

    room      the data with its border, channels last               room[h, w, c]
    for blocks of tiles, one after another through all rows of tiles:
        data      (B x Bᵀ) of each tile, lanes over channels        data[p, c, tile, lane]
        product   a matrix product for each place p of a tile       product[p, o, tile, lane]
        out       f(A (product) Aᵀ), lanes over outputs, then over a row

A block has as many tiles as a cache holds, or the rest: parts of tile rows.  Products go in passes
over a few tiles, the last of which ends with the block.  If lanes change between axes, a square of
elements is transposed.  What hangs over the edge is not stored; overlapping parts of the last pass,
and the last columns of a transposed row, are computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from plica.analysis.enclosing import simple
from plica.core import Term, rebuild, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.scalar import Le, Lt, Max, Min, Scalar, index
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import stages, with_element
from plica.ir.loop.statement import NOTHING, Alloc, Bind, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.op.winograd import Matrix
from plica.ir.type.dim import dim
from plica.schedule.default.bilinear import winograd_parts
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.transform import products
from plica.schedule.default.winograd_plan import AnyWinograd, WinogradPlan, planned_open
from plica.schedule.form import Facts

PASSES_THAT_FETCH: Final = 4
"""Passes over the tiles of a block in which the next weights are fetched."""

Size: TypeAlias = int | Scalar  # how often a loop runs, or how long an axis is


def open_winograd(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution of an open size, None where they are none."""
    if (parts := winograd_parts(of, facts)) is None:
        return None
    plan = planned_open(parts[-1], machine)
    return None if plan is None else OpenWinogradWriter(of, *parts, *plan).formed()


class OpenWinogradWriter:
    """Writes the kernel for images of any size; blocks have a given number of tiles at `most`."""

    def __init__(  # noqa: PLR0917  # what was found, and what to do about it
        self,
        whole: Stages,
        fold: Each,
        epilogue: Each | None,
        of: AnyWinograd,
        plan: WinogradPlan,
        most: int,
    ) -> None:
        self.whole, self.fold, self.epilogue = whole, fold, epilogue
        self.of, self.plan, self.most = of, plan, most
        self.names, self.result = Names(whole), fold.out.shape[2:]
        self.span, self.size = of.of.span, of.of.size
        self.down, self.across = (
            dim((scalar + (self.size - 1)) // self.size) for scalar in self.result
        )
        self.total = dim(self.down * self.across)
        # Each block is a stream: vectors that are no lines by themselves lie side by side there.
        is_line = plan.outer * of.weight.dtype.bytes >= LINE
        self.vectors_across = 1 if is_line else plan.tile.vectors
        self.wide = self.vectors_across * plan.outer
        places, channels, _ = of.weight.shape
        self.weight = self.buffer("packed", places, of.outputs // self.wide, channels, self.wide)
        width = Max(self.across * self.size + 2, index(plan.whole + of.before[1]))
        self.room = self.buffer("room", self.down * self.size + 2, width, of.channels)
        tiles = Min(self.total, index(most)) + (plan.tile.steps - 1)  # of one pass at least
        self.data, self.product = (
            self.buffer(name, places, count // lanes, tiles, lanes)
            for name, count, lanes in (
                ("data", of.channels, plan.inner), ("product", of.outputs, plan.outer),
            )
        )  # fmt: skip

    def buffer(self, like: str, *shape: Size, scope: str = "global") -> sc.Buffer:
        sizes = tuple([index(each) if isinstance(each, int) else dim(each) for each in shape])
        return sc.Buffer(self.names.name(like), sizes, self.of.x.dtype, scope)

    def formed(self) -> Stages:
        """All of it: the weight is packed, and the rest has the loops it should have."""

        def block(n: Scalar, b: Scalar) -> Stmt:
            first = b * self.most
            left = Max(Min(self.total - first, index(self.most)), index(0))

            def steps(count: Scalar) -> Stmt:
                return seq(
                    self.transform(first, count), self.multiply(count), self.finish(n, first, count)
                )

            return self.given(
                "count", left,
                lambda count: sc.And(Le(count, self.total), Le(count, index(self.most))), steps,
            )  # fmt: skip

        def image(n: Scalar) -> Stmt:
            blocks = (self.total + (self.most - 1)) // self.most
            statement = self.nest((blocks, "serial"), body=lambda b: block(n, b))
            return seq(
                self.copy(n), *[self.cleared(each) for each in (self.data, self.product)], statement
            )

        p, b, c, v = (self.names.var(each) for each in "pbcv")
        weight = sc.Load(self.of.weight, (p, c, b * self.wide + v))
        scratch = (self.room, self.data, self.product)
        loops = ExternStage(
            (*scratch, self.whole.result), self.nest((self.of.batch, "serial"), body=image)
        )
        both = (Each(self.weight, (p, b, c, v), weight), loops)
        return stages(self.whole.inputs, both, (*scratch, self.weight, self.whole.result))

    # --- statements ------------------------------------------------------------------------------

    @property
    def shared(self) -> LoopKind:
        """The kind of a loop whose iterations cores may share."""
        return "parallel" if self.plan.shares else "serial"

    def nest(self, *levels: tuple[Size, LoopKind], body: Callable[..., Stmt]) -> Stmt:
        """Loops, one in another."""
        vars_ = [self.names.var("ijkl"[at]) for at in range(len(levels))]
        statement = body(*vars_)
        for var, (count, kind) in reversed(list(zip(vars_, levels, strict=True))):
            statement = For(var, index(count) if isinstance(count, int) else count, kind, statement)
        return statement

    def given(
        self, name: str, value: Scalar, holds: Callable[[Scalar], Scalar],
        body: Callable[[Scalar], Stmt],
    ) -> Stmt:  # fmt: skip
        """A body with a variable for a value, and what always holds for it."""
        var = self.names.var(name)
        return Bind(var, value, Branch(holds(var), body(var), NOTHING))

    # --- data ------------------------------------------------------------------------------------

    def cleared(self, of: sc.Buffer) -> Stmt:
        """The padding behind the tiles of a block, for partial passes."""
        places, blocks, _, lanes = of.shape
        most = Min(self.total, index(self.most))
        return self.nest(
            (self.plan.tile.steps - 1, "serial"), (places, "serial"), (blocks, "serial"),
            (lanes, "vectorized"),
            body=lambda at, p, c, v: Store(of, (p, c, most + at, v), sc.Lit(0, of.dtype)),
        )  # fmt: skip

    def copy(self, n: Scalar) -> Stmt:
        """The padded data, channels last: transposed by squares of elements."""
        of, lanes, many = self.of, self.plan.inner, self.plan.whole
        (top, left), (rows, columns) = of.before, of.x.shape[2:]
        height, width, _ = self.room.shape
        zero, parts = sc.Lit(0, of.x.dtype), of.channels // lanes
        square = self.buffer("square", lanes, many, scope="local")

        def zeros(height: Size, width: Size, y: Scalar | int, x: Scalar | int) -> Stmt:
            return self.nest(
                (height, "serial"), (width, "serial"), (parts, "serial"), (lanes, "vectorized"),
                body=lambda h, w, c, v: Store(self.room, (h + y, w + x, c * lanes + v), zero),
            )  # fmt: skip

        def single(h: Scalar, c: Scalar) -> Stmt:
            def element(k: Scalar, v: Scalar) -> Stmt:
                value = sc.Load(of.x, (n, c * lanes + k, h, v))
                return Store(self.room, (h + top, v + left, c * lanes + k), value)

            return self.nest((lanes, "serial"), (columns, "serial"), body=element)

        def turned(h: Scalar, c: Scalar, start: Scalar, whole: bool) -> Stmt:
            def row(k: Scalar, v: Scalar) -> Stmt:
                value: Scalar = of.x[n, c * lanes + k, h, start + v]
                if not whole:
                    value = sc.Select(Lt(start + v, columns), value, zero)
                return Store(square, (k, v), value)

            def column(k: Scalar, v: Scalar) -> Stmt:
                return Store(self.room, (h + top, start + k + left, c * lanes + v), square[v, k])

            rows_ = self.nest((lanes, "unrolled"), (many, "vectorized"), body=row)
            columns_ = self.nest((many, "unrolled"), (lanes, "vectorized"), body=column)
            return Alloc(square, seq(rows_, columns_))

        def row(h: Scalar) -> Stmt:
            def part(c: Scalar) -> Stmt:
                strips = self.nest(
                    ((columns + (many - 1)) // many, "serial"),
                    body=lambda at: self.given(
                        "start", Min(at * many, columns - many),
                        lambda start: sc.And(Le(index(0), start), Le(start + many, columns)),
                        lambda start: turned(h, c, start, True),
                    ),
                )  # fmt: skip
                # There is space for padding columns.
                narrow = turned(h, c, index(0), False) if self.plan.masks else single(h, c)
                return Branch(Le(index(many), columns), strips, narrow)

            return seq(
                zeros(1, left, h + top, 0),
                self.nest((parts, "serial"), body=part),
                zeros(1, dim(width - columns - left), h + top, columns + left),
            )

        return seq(
            zeros(top, width, 0, 0),
            self.nest((rows, self.shared), body=row),
            zeros(dim(height - rows - top), width, rows + top, 0),
        )

    def transform(self, first: Scalar, count: Scalar) -> Stmt:
        """A given number of tiles from a first one on."""
        parts = self.of.channels // self.plan.inner

        def line(row: Scalar, base: Scalar, low: Scalar, high: Scalar) -> Stmt:
            def tile(at: Scalar) -> Stmt:
                column, number = self.names.var("column"), self.names.var("number")
                there = sc.And(_inside(number, count), _inside(column, self.across))
                place = (row * self.size, column * self.size, number)
                made = self.nest((parts, "serial"), body=lambda c: self.transformed(*place, c))
                made = Branch(there, made, NOTHING)
                return Bind(column, low + at, Bind(number, column + base, made))

            return self.nest((high - low, "serial"), body=tile)

        return self.lines(first, count, line)

    def transformed(self, top: Scalar, left: Scalar, number: Scalar, c: Scalar) -> Stmt:
        """One tile of some channels, which begins there, at its number among the data."""
        matrix, lanes, span = self.of.of.data, self.plan.inner, self.span
        half = self.buffer("half", span, span, lanes, scope="local")

        def columns(column: Scalar) -> Stmt:
            return self.rows_of(
                matrix, lanes,
                lambda k, v: sc.Load(self.room, (simple(top + k), left + column, c * lanes + v)),
                lambda a, v, value: Store(half, (index(a), column, v), value),
            )  # fmt: skip

        def rows(a: Scalar) -> Stmt:
            return self.rows_of(
                matrix, lanes,
                lambda k, v: half[a, k, v],
                lambda q, v, value: Store(self.data, (a * span + q, c, number, v), value),
            )  # fmt: skip

        both = [self.nest((span, "unrolled"), body=each) for each in (columns, rows)]
        return Alloc(half, seq(*both))

    def lines(
        self, first: Scalar, count: Scalar, body: Callable[[Scalar, Scalar, Scalar, Scalar], Stmt]
    ) -> Stmt:
        """A body for the tiles of a block, tile row by tile row: given the row, the index of its
        first tile in the block, and the block's range in it."""
        top, row, base, low, high = (
            self.names.var(each) for each in ("top", "row", "base", "low", "high")
        )
        across = Max(self.across, index(1))

        def line(number: Scalar) -> Stmt:
            made: Stmt = Branch(_inside(row, self.down), body(row, base, low, high), NOTHING)
            made = Bind(high, Min(count - base, self.across), made)
            made = Bind(low, Max(index(0) - base, index(0)), made)
            return Bind(row, top + number, Bind(base, row * self.across - first, made))

        rows = (first + count + (across - 1)) // across - top
        return Bind(top, first // across, self.nest((rows, self.shared), body=line))

    # --- products --------------------------------------------------------------------------------

    def multiply(self, count: Scalar) -> Stmt:
        """A product of matrices for each place of a tile: whole passes, then short ones."""
        steps, rest, left = self.plan.tile.steps, self.plan.rest, self.plan.left
        groups = self.of.outputs // self.plan.outer // self.plan.tile.vectors
        passes, done, short = (self.names.var(each) for each in ("passes", "done", "short"))

        def group(p: Scalar, g: Scalar) -> Stmt:
            whole = self.passed(p, g, passes, steps, count)
            return seq(whole, self.passed(p, g, short, rest, count, done)) if left else whole

        made = self.nest((self.span**2, self.shared), (groups, "serial"), body=group)
        made = Bind(short, (Max(count - done, index(0)) + (rest - 1)) // rest, made)
        made = Bind(done, passes * steps, made)
        return Bind(passes, (count + (steps - 1 - left)) // steps, made)

    def passed(  # noqa: PLR0917  # a place, outputs, and passes
        self, p: Scalar, g: Scalar, passes: Scalar, steps: int, count: Scalar,
        start: Scalar | None = None,
    ) -> Stmt:  # fmt: skip
        """Passes over as many tiles from a `start` on, none of which goes beyond the last, for a
        place of these, and a few vectors of outputs."""
        plan, vectors, factor = self.plan, self.plan.tile.vectors, self.plan.unrolled(steps)
        total = self.buffer("total", steps, vectors, plan.outer, scope="local")
        sums: list[tuple[int, LoopKind]] = [
            (steps, "unrolled"), (vectors, "unrolled"), (plan.outer, "vectorized"),
        ]  # fmt: skip

        def tile(first: Scalar) -> Stmt:
            def terms(outer: Scalar, inner: Scalar, u: Scalar) -> Stmt:
                def step(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                    at, block, lane = inner * factor + u, g * vectors + m, v
                    if self.vectors_across > 1:
                        block, lane = g, m * plan.outer + v
                    weight = self.weight[p, block, outer * plan.inner + at, lane]
                    times = sc.Mul(sc.Load(self.data, (p, outer, first + s, at)), weight)
                    return Store(total, (s, m, v), sc.Add(total[s, m, v], times))

                return self.nest(*sums, body=step)

            def kept(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                return Store(self.product, (p, g * vectors + m, first + s, v), total[s, m, v])

            zero = self.nest(
                *sums, body=lambda s, m, v: Store(total, (s, m, v), sc.Lit(0, total.dtype))
            )
            summed = self.nest(
                (self.of.channels // plan.inner, "serial"), (plan.inner // factor, "serial"),
                (factor, "unrolled"),
                body=terms,
            )  # fmt: skip
            if start is None:  # what is left over has no time to fetch anything
                summed = self.fetching(summed)
            return Alloc(total, seq(zero, summed, self.nest(*sums, body=kept)))

        def one(q: Scalar) -> Stmt:
            there: Scalar = q * steps if start is None else start + q * steps
            end = self.data.shape[-2]
            return self.given(
                "first", Min(there, Max(count - steps, index(0))),
                lambda first: sc.And(Le(index(0), first), Le(first + steps, end)), tile,
            )  # fmt: skip

        return self.nest((passes, "serial"), body=one)

    def fetching(self, sums: Stmt) -> Stmt:
        """The loop over channels, in which each pass fetches its share of the next weights."""
        plan, channels = self.plan, self.of.channels
        if not plan.fetches:
            return sums
        assert isinstance(sums, For)
        ahead = channels * plan.tile.vectors * plan.outer
        bytes_ = ahead * self.of.x.dtype.bytes
        lines = -(-bytes_ // LINE // PASSES_THAT_FETCH // (channels // plan.inner))
        notes = (("fetch_next", (ahead, PASSES_THAT_FETCH, lines)),)
        return For(sums.var, sums.extent, sums.kind, sums.body, notes)

    # --- results ---------------------------------------------------------------------------------

    def finish(self, n: Scalar, first: Scalar, count: Scalar) -> Stmt:
        """The results of a block, several tiles of a row at a time, with the epilogue.

        Tiles beyond the last of a row repeat it, and are not stored.
        """
        tiles, start = max(1, self.plan.whole // self.size), self.names.var("start")

        def line(row: Scalar, base: Scalar, low: Scalar, high: Scalar) -> Stmt:
            def some(strip: Scalar, end: Scalar) -> Stmt:
                def numbered(at: Scalar, body: Callable[[Scalar], Stmt]) -> Stmt:
                    place = Min(start + at, high - 1) + base
                    return self.given("number", place, lambda each: _inside(each, count), body)

                made = self.nest(
                    (self.of.outputs // self.plan.outer, "serial"),
                    body=lambda o: self.finished(
                        (n, o, row * self.size, start * self.size), tiles, end, numbered
                    ),
                )
                return Bind(start, low + strip * tiles, made)

            strips = (high - low + (tiles - 1)) // tiles
            return self.given(
                "end", Min(high * self.size, self.result[1]),
                lambda end: Le(end, self.result[1]),
                lambda end: self.nest((strips, "serial"), body=lambda strip: some(strip, end)),
            )  # fmt: skip

        return self.lines(first, count, line)

    def finished(
        self,
        begin: tuple[Scalar, Scalar, Scalar, Scalar],
        tiles: int,
        end: Scalar,
        numbered: Callable[[Scalar, Callable[[Scalar], Stmt]], Stmt],
    ) -> Stmt:
        """Results of some tiles of a row, which begin there: example, outputs, row and column; the
        columns that a block has `end` there.

        The work on each depends on its index in the block.
        """
        matrix, lanes, (n, o, top, left) = self.of.of.result, self.plan.outer, begin
        span, size, count = self.span, self.size, tiles * self.size
        half = self.buffer("half", size, span, lanes, scope="local")
        square = self.buffer("square", size, count, self.plan.whole, scope="local")

        def tile(at: Scalar, number: Scalar) -> Stmt:
            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    matrix, lanes,
                    lambda k, v: sc.Load(self.product, (k * span + column, o, number, v)),
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    matrix, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(square, (a, at * size + q, v), value),
                )  # fmt: skip

            whole = self.nest((span, "unrolled"), body=columns)
            return Alloc(half, seq(whole, self.nest((size, "unrolled"), body=rows)))

        def row(a: Scalar) -> Stmt:
            def result(lane: Scalar, v: Scalar) -> Stmt:
                place = (n, o * lanes + lane, top + a, left + v)
                return self.stored(place, square[a, v, lane])

            inside = self.columns_inside(left, end, lanes, count, result)
            return Branch(Lt(top + a, self.result[0]), inside, NOTHING)

        statement = self.nest(
            (tiles, "serial"), body=lambda at: numbered(at, lambda number: tile(at, number))
        )
        # A loop: the square is in memory, and its rows are written alike.
        return Alloc(square, seq(statement, self.nest((size, "serial"), body=row)))

    def columns_inside(  # a strip of the result
        self, left: Scalar, end: Scalar, rows: int, count: int,
        body: Callable[[Scalar, Scalar], Stmt],
    ) -> Stmt:  # fmt: skip
        """A body for a number of rows, and of columns as far as these are in the result; without
        partial vector stores, the remainder goes one by one."""
        if self.plan.masks:
            return self.nest(
                (rows, "unrolled"), (count, "vectorized"),
                body=lambda row, v: Branch(Lt(left + v, end), body(row, v), NOTHING),
            )  # fmt: skip
        whole = self.nest((rows, "unrolled"), (count, "vectorized"), body=body)
        there = Max(Min(end - left, index(count)), index(0))
        single = self.nest((rows, "serial"), (there, "serial"), body=body)
        return Branch(Le(left + count, end), whole, single)

    def stored(self, place: tuple[Scalar, ...], value: Scalar) -> Stmt:
        """A result at its place in the tensor that was to be computed."""
        out = self.whole.result
        if self.epilogue is None:
            return Store(out, place, value)
        (read,) = [load for load in loads(self.epilogue.value) if load.buffer is self.fold.out]
        at: dict[Term, Term] = {
            axis: there
            for axis, there in zip(read.indices, place, strict=True)
            if isinstance(axis, sc.ScalarVar)
        }
        whole = substitute(with_element(self.epilogue.value, self.fold.out, value), at)
        there = tuple([at.get(axis, index(0)) for axis in self.epilogue.axes])
        return Store(out, there, whole)  # type: ignore[arg-type]  # scalars give scalars

    def rows_of(
        self,
        matrix: Matrix,
        lanes: int,
        read: Callable[[Scalar, Scalar], Scalar],
        store: Callable[[int, Scalar, Scalar], Stmt],
    ) -> Stmt:
        """A matrix times a column of vectors, by lanes: each vector is read once."""

        def lane(v: Scalar) -> Stmt:
            values = [read(index(k), v) for k in range(len(matrix[0]))]
            given = [self.value(scalar) for scalar in values]
            rows = products(matrix, given)
            parts = [kid for row in rows for kid in row._children if isinstance(kid, Scalar)]
            uses = Counter(part for part in parts if part._children)
            twice = [scalar for scalar, count in uses.items() if count > 1]
            held = [*zip(given, values, strict=True), *[(self.value(term), term) for term in twice]]
            known: dict[Term, Term] = {value: var for var, value in held[len(given) :]}
            rows = [rebuild(row, tuple([known.get(k, k) for k in row._children])) for row in rows]
            statement = seq(*[store(at, v, row) for at, row in enumerate(rows)])
            for var, value in reversed(held):
                statement = Bind(var, value, statement)
            return statement

        return self.nest((lanes, "vectorized"), body=lane)

    def value(self, of: Scalar) -> sc.ScalarVar:
        """A variable for a value."""
        return sc.ScalarVar(self.names.name("x"), sc.dtype_of(of))


def _inside(place: Scalar, size: Scalar) -> Scalar:
    """What holds for a place of an axis."""
    return sc.And(Le(index(0), place), Lt(place, size))
