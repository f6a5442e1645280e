"""The loops of a Winograd convolution of images of an open size.

    room    the data with its border, channels last                     room[h, w, c]
    for blocks of tiles, one after another through all rows of tiles:
        data      of all tiles of the block, and zeros where these fill no pass
        product   in passes over a few tiles, the last of which ends with the block
        out       tile by tile; what hangs over the edge is not stored

A block has as many tiles as a cache holds, or the rest: parts of tile rows. Overlapping parts of
the last pass are computed twice, and so are the last columns of a transposed row.
"""

from __future__ import annotations

from collections.abc import Callable

from plica.ir.loop.scalar import And, Buffer, Le, Lit, Load, Lt, Max, Min, Scalar, Select, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Alloc, Bind, Branch, Stmt, Store, seq
from plica.ir.type.dim import dim
from plica.schedule.default.bilinear import winograd_parts
from plica.schedule.default.machine import Machine
from plica.schedule.default.winograd_plan import AnyWinograd, WinogradPlan, planned_open
from plica.schedule.default.winograd_step import Size, TilePasses, WinogradSteps
from plica.schedule.form import Facts


def open_winograd(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution of an open size, None where they are none."""
    if (parts := winograd_parts(of, facts)) is None:
        return None
    plan = planned_open(parts[-1], machine)
    return None if plan is None else OpenWinogradWriter(of, *parts, *plan).formed()


class OpenWinogradWriter(WinogradSteps):
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
        super().__init__(whole, fold, epilogue, of, plan)
        self.of, self.most = of, most
        span, size = of.of.span, of.of.size
        self.down, self.across = (dim((scalar + (size - 1)) // size) for scalar in self.result)
        wide = Max(self.across * size + 2, index(plan.whole + of.before[1]))
        self.room = self.buffer("room", self.down * size + 2, wide, of.channels)
        self.total = dim(self.down * self.across)
        self.end = self.names.var("end")
        room = Min(self.total, index(most)) + (plan.tile.steps - 1)  # of one pass at least
        self.data = self.buffer("data", span**2, of.channels // plan.inner, room, plan.inner)
        self.product = self.buffer("product", span**2, of.outputs // plan.outer, room, plan.outer)

    def formed(self) -> Stages:
        """All of it: the weight is packed, and the rest has the loops it should have."""

        def block(n: Scalar, b: Scalar) -> Stmt:
            first, count = b * self.most, self.names.var("count")
            left = Max(Min(self.total - first, index(self.most)), index(0))
            steps = seq(
                self.transform(first, count), self.multiply(count), self.finish(n, first, count)
            )
            fits = And(Le(count, self.total), Le(count, index(self.most)))
            return Bind(count, left, Branch(fits, steps, NOTHING))  # it does

        def image(n: Scalar) -> Stmt:
            blocks = (self.total + (self.most - 1)) // self.most
            statement = self.nest((blocks, "serial"), body=lambda b: block(n, b))
            return seq(
                self.copy(n), *[self.cleared(each) for each in (self.data, self.product)], statement
            )

        return self.packed(self.nest((self.of.batch, "serial"), body=image))

    def cleared(self, of: Buffer) -> Stmt:
        """The padding behind the tiles of a block, for partial passes."""
        places, blocks, _, lanes = of.shape
        most = Min(self.total, index(self.most))
        return self.nest(
            (self.plan.tile.steps - 1, "serial"), (places, "serial"), (blocks, "serial"),
            (lanes, "vectorized"),
            body=lambda at, p, c, v: Store(of, (p, c, most + at, v), Lit(0, of.dtype)),
        )  # fmt: skip

    def copy(self, n: Scalar) -> Stmt:
        """The padded data, channels last: transposed by squares of elements."""
        of, lanes, many = self.of, self.plan.inner, self.plan.whole
        (top, left), (rows, columns) = of.before, of.x.shape[2:]
        height, width, _ = self.room.shape
        square = self.buffer("square", lanes, many, scope="local")

        def zeros(height: Size, width: Size, y: Scalar | int, x: Scalar | int) -> Stmt:
            return self.nest(
                (height, "serial"), (width, "serial"), (of.channels // lanes, "serial"),
                (lanes, "vectorized"),
                body=lambda h, w, c, v: Store(
                    self.room, (h + y, w + x, c * lanes + v), Lit(0, of.x.dtype)
                ),
            )  # fmt: skip

        def single(h: Scalar, c: Scalar) -> Stmt:
            return self.nest(
                (lanes, "serial"), (columns, "serial"),
                body=lambda k, v: Store(
                    self.room,
                    (h + top, v + left, c * lanes + k),
                    Load(of.x, (n, c * lanes + k, h, v)),
                ),
            )  # fmt: skip

        def turned(h: Scalar, c: Scalar, start: Scalar, whole: bool) -> Stmt:
            def row(k: Scalar, v: Scalar) -> Stmt:
                value: Scalar = of.x[n, c * lanes + k, h, start + v]
                if not whole:
                    value = Select(Lt(start + v, columns), value, Lit(0, of.x.dtype))
                return Store(square, (k, v), value)

            def column(k: Scalar, v: Scalar) -> Stmt:
                return Store(self.room, (h + top, start + k + left, c * lanes + v), square[v, k])

            rows_ = self.nest((lanes, "unrolled"), (many, "vectorized"), body=row)
            columns_ = self.nest((many, "unrolled"), (lanes, "vectorized"), body=column)
            return Alloc(square, seq(rows_, columns_))

        def row(h: Scalar) -> Stmt:
            def part(c: Scalar) -> Stmt:
                def strip(at: Scalar) -> Stmt:
                    start = self.names.var("start")
                    fits = And(Le(index(0), start), Le(start + many, columns))  # it does
                    branch = Branch(fits, turned(h, c, start, True), NOTHING)
                    return Bind(start, Min(at * many, columns - many), branch)

                strips = self.nest(((columns + (many - 1)) // many, "serial"), body=strip)
                # There is space for padding columns.
                narrow = turned(h, c, index(0), False) if self.plan.masks else single(h, c)
                return Branch(Le(index(many), columns), strips, narrow)

            return seq(
                zeros(1, left, h + top, 0),
                self.nest((of.channels // lanes, "serial"), body=part),
                zeros(1, dim(width - columns - left), h + top, columns + left),
            )

        return seq(
            zeros(top, width, 0, 0),
            self.nest((rows, self.shared), body=row),
            zeros(dim(height - rows - top), width, rows + top, 0),
        )

    def transform(self, first: Scalar, count: Scalar) -> Stmt:
        """A given number of tiles from a first one on."""
        of, lanes, size = self.of, self.plan.inner, self.of.of.size

        def line(row: Scalar, base: Scalar, low: Scalar, high: Scalar) -> Stmt:
            def tile(at: Scalar) -> Stmt:
                column, number = self.names.var("column"), self.names.var("number")
                inside = And(Le(index(0), number), Lt(number, count))
                there = And(inside, And(Le(index(0), column), Lt(column, self.across)))  # it is
                made = self.nest(
                    (of.channels // lanes, "serial"),
                    body=lambda c: self.transformed(row * size, column * size, number, c),
                )
                made = Branch(there, made, NOTHING)
                return Bind(column, low + at, Bind(number, column + base, made))

            return self.nest((high - low, "serial"), body=tile)

        return self.lines(first, count, line)

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
            there = And(Le(index(0), row), Lt(row, self.down))  # it is
            made: Stmt = Branch(there, body(row, base, low, high), NOTHING)
            made = Bind(high, Min(count - base, self.across), made)
            made = Bind(low, Max(index(0) - base, index(0)), made)
            return Bind(row, top + number, Bind(base, row * self.across - first, made))

        rows = (first + count + (across - 1)) // across - top
        return Bind(top, first // across, self.nest((rows, self.shared), body=line))

    def multiply(self, count: Scalar) -> Stmt:
        """A product of matrices for each place of a tile: whole passes, then short ones."""
        steps, rest = self.plan.tile.steps, self.plan.rest
        passes, done, short = (self.names.var(each) for each in ("passes", "done", "short"))
        whole = TilePasses(passes, steps, 0, Max(count - steps, index(0)))
        over = TilePasses(short, rest, done, Max(count - rest, index(0)))
        made = self.multiplied(whole, *([over] if self.plan.left else []))
        made = Bind(short, (Max(count - done, index(0)) + (rest - 1)) // rest, made)
        made = Bind(done, passes * steps, made)
        return Bind(passes, (count + (steps - 1 - self.plan.left)) // steps, made)

    def finish(self, n: Scalar, first: Scalar, count: Scalar) -> Stmt:
        """The results of a block, several tiles of a row at a time, with the epilogue.

        Tiles beyond the last of a row repeat it, and are not stored.
        """
        size, tiles = self.of.of.size, max(1, self.plan.whole // self.of.of.size)
        start = self.names.var("start")

        def line(row: Scalar, base: Scalar, low: Scalar, high: Scalar) -> Stmt:
            def numbered(at: Scalar, body: Callable[[Scalar], Stmt]) -> Stmt:
                number = self.names.var("number")
                there = And(Le(index(0), number), Lt(number, count))  # it is
                return Bind(
                    number, Min(start + at, high - 1) + base, Branch(there, body(number), NOTHING)
                )

            def some(strip: Scalar) -> Stmt:
                made = self.nest(
                    (self.of.outputs // self.plan.outer, "serial"),
                    body=lambda o: self.finished((n, o, row * size, start * size), tiles, numbered),
                )
                return Bind(start, low + strip * tiles, made)

            strips = (high - low + (tiles - 1)) // tiles
            fits = Le(self.end, self.result[1])  # it is
            statement: Stmt = Branch(fits, self.nest((strips, "serial"), body=some), NOTHING)
            return Bind(self.end, Min(high * size, self.result[1]), statement)

        return self.lines(first, count, line)
