"""The steps of a Winograd convolution of an open size: tiles are transformed, multiplied and
transformed back.

    data      (B x Bᵀ) of each tile, lanes over channels            data[p, c, tile, lane]
    product   a matrix product for each of the places p of a tile   product[p, o, tile, lane]
    out       f(A (product) Aᵀ) of some tiles, lanes over outputs, then over a row

A tile is in registers from its load to the end of its transform. If lanes change between axes, a
square of elements is transposed. Blocks of tiles are formed in `winograd_open`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.core.binding import substitute
from plica.core.term import Term, rebuild
from plica.ir.loop.scalar import (
    Add,
    And,
    Buffer,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Scalar,
    ScalarVar,
    dtype_of,
    index,
)  # fmt: skip
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages, with_element
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Bind,
    Branch,
    For,
    LoopKind,
    Stmt,
    Store,
    seq,
)  # fmt: skip
from plica.ir.op.winograd import Matrix
from plica.ir.type.dim import dim
from plica.schedule.default.bilinear_schedule import MAX_LANES_UNROLLED, MAX_MULTIPLY_ADDS_UNROLLED
from plica.schedule.default.machine import LINE
from plica.schedule.default.transform import products
from plica.schedule.default.winograd_plan import AnyWinograd, WinogradPlan

PASSES_THAT_FETCH: Final = 4
"""Passes over the tiles of a block of open size in which the next weights are fetched."""

Size: TypeAlias = int | Scalar  # how often a loop runs, or how long an axis is


@frozen
class TilePasses:
    """Passes over a block's tiles: their number and length, and the start of the first; none begins
    behind the `last`."""

    count: Size
    steps: int
    start: Size
    last: Scalar


class WinogradSteps:
    """Writes the steps of a kernel: names in use, and the buffers."""

    room: Buffer
    data: Buffer
    product: Buffer
    end: ScalarVar  # where the columns of the result end that a block has

    def __init__(  # what was found, and what to do about it
        self, whole: Stages, fold: Each, epilogue: Each | None, of: AnyWinograd, plan: WinogradPlan
    ) -> None:
        self.whole, self.fold, self.epilogue, self.plan = whole, fold, epilogue, plan
        self.work = of
        self.names = Names(whole)
        self.out = whole.result
        self.result = fold.out.shape[2:]
        # Each block is a stream: vectors that are no lines by themselves lie side by side there.
        is_line = plan.outer * of.weight.dtype.bytes >= LINE
        self.vectors_across = 1 if is_line else plan.tile.vectors
        wide = self.vectors_across * plan.outer
        self.weight = Buffer(
            self.names.name("packed"),
            (of.weight.shape[0], index(of.outputs // wide), of.weight.shape[1], index(wide)),
            of.weight.dtype,
        )

    def buffer(self, like: str, *shape: Size, scope: str = "global") -> Buffer:
        sizes = tuple([index(each) if isinstance(each, int) else dim(each) for each in shape])
        return Buffer(self.names.name(like), sizes, self.work.x.dtype, scope)

    @property
    def shared(self) -> LoopKind:
        """The kind of a loop whose iterations cores may share."""
        return "parallel" if self.plan.shares else "serial"

    def packed(self, body: Stmt) -> Stages:
        """The stages: the weight is packed, and the rest has the loops it should have."""
        p, b, c, v = (self.names.var(each) for each in "pbcv")
        weight = Load(self.work.weight, (p, c, b * (self.vectors_across * self.plan.outer) + v))
        scratch = (self.room, self.data, self.product)
        both = (Each(self.weight, (p, b, c, v), weight), ExternStage((*scratch, self.out), body))
        return stages(self.whole.inputs, both, (*scratch, self.weight, self.out))

    def nest(self, *levels: tuple[Size, LoopKind], body: Callable[..., Stmt]) -> Stmt:
        """Loops, one in another."""
        vars_ = [self.names.var("ijkl"[at]) for at in range(len(levels))]
        statement = body(*vars_)
        for var, (count, kind) in reversed(list(zip(vars_, levels, strict=True))):
            statement = For(var, index(count) if isinstance(count, int) else count, kind, statement)
        return statement

    def transformed(self, top: Scalar, left: Scalar, number: Scalar, c: Scalar) -> Stmt:
        """One tile of some channels, which begins there, at its number among the data."""
        of, lanes, span = self.work.of, self.plan.inner, self.work.of.span
        half = self.buffer("half", span, span, lanes, scope="local")

        def columns(column: Scalar) -> Stmt:
            return self.rows_of(
                of.data, lanes,
                lambda k, v: Load(
                    self.room, (simple(top + k), left + column, c * lanes + v)
                ),
                lambda a, v, value: Store(half, (index(a), column, v), value),
            )  # fmt: skip

        def rows(a: Scalar) -> Stmt:
            return self.rows_of(
                of.data, lanes,
                lambda k, v: half[a, k, v],
                lambda q, v, value: Store(
                    self.data, (a * span + q, c, number, v), value
                ),
            )  # fmt: skip

        both = [self.nest((span, "unrolled"), body=each) for each in (columns, rows)]
        return Alloc(half, seq(*both))

    def multiplied(self, *parts: TilePasses) -> Stmt:
        """A product of matrices for each place of a tile, in passes over the tiles."""
        groups = self.work.outputs // self.plan.outer // self.plan.tile.vectors

        def group(p: Scalar, g: Scalar) -> Stmt:
            return seq(*[self._passed(p, g, part) for part in parts])

        return self.nest((self.work.of.span**2, self.shared), (groups, "serial"), body=group)

    def _passed(self, p: Scalar, g: Scalar, passes: TilePasses) -> Stmt:
        """Passes over some tiles for a place of these, and a few vectors of outputs."""
        of, plan, vectors = self.work, self.plan, self.plan.tile.vectors
        steps, start, last = passes.steps, passes.start, passes.last
        total = self.buffer("total", steps, vectors, plan.outer, scope="local")
        many = steps * vectors
        most = [
            each
            for each in (8, 4, 2)
            if plan.inner % each == 0 and each * many <= MAX_MULTIPLY_ADDS_UNROLLED
        ]
        factor = plan.inner if plan.inner <= MAX_LANES_UNROLLED else max(most, default=1)
        sums: list[tuple[int, LoopKind]] = [
            (steps, "unrolled"), (vectors, "unrolled"), (plan.outer, "vectorized"),
        ]  # fmt: skip

        def one(q: Scalar) -> Stmt:
            there: Scalar = q * steps if start == 0 else start + q * steps
            first = self.names.var("first")

            def place(c: Scalar, s: Scalar, v: Scalar) -> tuple[Scalar, ...]:
                return p, c, first + s, v

            def terms(outer: Scalar, inner: Scalar, u: Scalar) -> Stmt:
                def step(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                    at = inner * factor + u
                    block, lane = g * vectors + m, v
                    if self.vectors_across > 1:
                        block, lane = g, m * plan.outer + v
                    weight = self.weight[p, block, outer * plan.inner + at, lane]
                    times = Mul(Load(self.data, place(outer, s, at)), weight)
                    return Store(total, (s, m, v), Add(total[s, m, v], times))

                return self.nest(*sums, body=step)

            def kept(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                return Store(self.product, place(g * vectors + m, s, v), total[s, m, v])

            zero = self.nest(
                *sums, body=lambda s, m, v: Store(total, (s, m, v), Lit(0, total.dtype))
            )
            summed = self.nest(
                (of.channels // plan.inner, "serial"), (plan.inner // factor, "serial"),
                (factor, "unrolled"),
                body=terms,
            )  # fmt: skip
            if start == 0:  # what is left over has no time to fetch anything
                summed = self.fetching(summed)
            statement: Stmt = Alloc(total, seq(zero, summed, self.nest(*sums, body=kept)))
            inside = And(Le(index(0), first), Le(first + steps, self.data.shape[-2]))  # it is
            return Bind(first, Min(there, last), Branch(inside, statement, NOTHING))

        return self.nest((passes.count, "serial"), body=one)

    def fetching(self, sums: Stmt) -> Stmt:
        """The loop over channels, in which each pass fetches its share of the next weights."""
        plan = self.plan
        if not plan.fetches:
            return sums
        assert isinstance(sums, For)
        ahead = self.work.channels * plan.tile.vectors * plan.outer
        lines = -(
            -ahead * self.work.x.dtype.bytes
            // LINE // PASSES_THAT_FETCH // (self.work.channels // plan.inner)
        )  # fmt: skip
        notes = (("fetch_next", (ahead, PASSES_THAT_FETCH, lines)),)
        return For(sums.var, sums.extent, sums.kind, sums.body, notes)

    def finished(
        self,
        start: tuple[Scalar, Scalar, Scalar, Scalar],
        tiles: int,
        numbered: Callable[[Scalar, Callable[[Scalar], Stmt]], Stmt],
    ) -> Stmt:
        """Results of some tiles of a row, which begin there: example, outputs, row and column.

        The work on each depends on its index in the block.
        """
        of, lanes, (n, o, top, left) = self.work.of, self.plan.outer, start
        span, size = of.span, of.size
        half = self.buffer("half", size, span, lanes, scope="local")
        square = self.buffer("square", size, tiles * size, self.plan.whole, scope="local")

        def tile(at: Scalar, number: Scalar) -> Stmt:
            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    of.result, lanes,
                    lambda k, v: Load(
                        self.product, (k * span + column, o, number, v)
                    ),
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    of.result, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(square, (a, at * size + q, v), value),
                )  # fmt: skip

            whole = self.nest((span, "unrolled"), body=columns)
            return Alloc(half, seq(whole, self.nest((size, "unrolled"), body=rows)))

        def row(a: Scalar) -> Stmt:
            def result(lane: Scalar, v: Scalar) -> Stmt:
                place = (n, o * lanes + lane, top + a, left + v)
                return self.stored(place, square[a, v, lane])

            inside = self.columns_inside(left, lanes, tiles * size, result)
            return Branch(Lt(top + a, self.result[0]), inside, NOTHING)

        statement = self.nest(
            (tiles, "serial"), body=lambda at: numbered(at, lambda number: tile(at, number))
        )
        # A loop: the square is in memory, and its rows are written alike.
        return Alloc(square, seq(statement, self.nest((size, "serial"), body=row)))

    def columns_inside(
        self, left: Scalar, rows: int, count: int, body: Callable[[Scalar, Scalar], Stmt]
    ) -> Stmt:
        """A body for a number of rows, and of columns as far as these are in the result; without
        partial vector stores, the remainder goes one by one."""
        if self.plan.masks:
            return self.nest(
                (rows, "unrolled"), (count, "vectorized"),
                body=lambda row, v: Branch(Lt(left + v, self.end), body(row, v), NOTHING),
            )  # fmt: skip
        whole = self.nest((rows, "unrolled"), (count, "vectorized"), body=body)
        there = Max(Min(self.end - left, index(count)), index(0))
        single = self.nest((rows, "serial"), (there, "serial"), body=body)
        return Branch(Le(left + count, self.end), whole, single)

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

    def rows_of(
        self,
        matrix: Matrix,
        lanes: int,
        read: Callable[[Scalar, Scalar], Scalar],
        store: Callable[[int, Scalar, Scalar], Stmt],
    ) -> Stmt:
        """A matrix times a column of vectors: a loop over lanes, in which each vector is read once,
        and what two rows share is computed once."""

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

    def value(self, of: Scalar) -> ScalarVar:
        """A variable for a value."""
        return ScalarVar(self.names.name("x"), dtype_of(of))
