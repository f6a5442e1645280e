"""The loops of a Winograd convolution of images of an open size.

    room    the data with its border, channels last                     room[h, w, c]
    for blocks of tiles, one after another through all rows of tiles:
        data      of all tiles of the block, and zeros up to the end of a pass
        product   in passes over a few tiles, then over two
        out       tile by tile; what hangs over the edge is not stored

A block has as many tiles as a cache holds, or what is left; where a tile is in the image is a
quotient and a remainder by the tiles of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.loop.scalar import And, Buffer, Le, Lit, Lt, Max, Min, Scalar, Select, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Alloc, Bind, Branch, Stmt, Store, seq
from plica.ir.type.dim import dim
from plica.schedule.default.winograd_plan import AnyWinograd, WinogradPlan
from plica.schedule.default.winograd_step import Size, WinogradSteps

REST: Final = 2
"""Tiles of a pass over what fills no whole pass: as many as keep sums apart, and little is done
for nothing."""


class OpenWinogradWriter(WinogradSteps):
    """Writes the kernel for images of any size; blocks have so many tiles at `most`."""

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
        self.result = fold.out.shape[2:]
        self.down, self.across = (dim((each + (size - 1)) // size) for each in self.result)
        self.room = self.buffer("room", self.down * size + 2, self.across * size + 2, of.channels)
        self.total = dim(self.down * self.across)
        self.end = self.names.var("end")
        room = Min(self.total, index(most)) + (REST - 1)  # the last pass may go beyond
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
            return seq(self.copy(n), self.nest((blocks, "serial"), body=lambda b: block(n, b)))

        return self.packed(self.nest((self.of.batch, "serial"), body=image))

    def copy(self, n: Scalar) -> Stmt:
        """The data with its border, channels last: turned a square of elements at a time."""
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

        def turned(h: Scalar, c: Scalar, start: Scalar, whole: bool) -> Stmt:
            def row(k: Scalar, v: Scalar) -> Stmt:
                value: Scalar = of.x[n, c * lanes + k, h, start + v]
                if not whole:
                    value = Select(Lt(start + v, columns), value, Lit(0, of.x.dtype))
                return Store(square, (k, v), value)

            def column(k: Scalar, v: Scalar) -> Stmt:
                return Store(self.room, (h + top, start + k + left, c * lanes + v), square[v, k])

            def there(k: Scalar) -> Stmt:
                made = self.nest((lanes, "vectorized"), body=lambda v: column(k, v))
                return made if whole else Branch(Lt(start + k, columns), made, NOTHING)

            rows_ = self.nest((lanes, "unrolled"), (many, "vectorized"), body=row)
            return Alloc(square, seq(rows_, self.nest((many, "unrolled"), body=there)))

        def row(h: Scalar) -> Stmt:
            def part(c: Scalar) -> Stmt:
                done = columns // many * many
                return seq(
                    self.nest(
                        (columns // many, "serial"), body=lambda at: turned(h, c, at * many, True)
                    ),
                    Branch(Lt(done, columns), turned(h, c, done, False), NOTHING),
                )

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
        """So many tiles from a first one on; what is beyond them in the last pass is 0."""
        of, lanes, size = self.of, self.plan.inner, self.of.of.size

        def tile(at: Scalar) -> Stmt:
            def there(row: Scalar, column: Scalar) -> Stmt:
                return self.nest(
                    (of.channels // lanes, "serial"),
                    body=lambda c: self.transformed(row * size, column * size, at, c),
                )

            return self.placed(first + at, there)

        def nothing(of: Buffer) -> Stmt:
            places, blocks, _, lanes = of.shape
            return self.nest(
                (REST - 1, "serial"), (places, "serial"), (blocks, "serial"), (lanes, "vectorized"),
                body=lambda at, p, c, v: Store(of, (p, c, count + at, v), Lit(0, of.dtype)),
            )  # fmt: skip

        zeros = [nothing(each) for each in (self.data, self.product)]
        return seq(*zeros, self.nest((count, self.shared), body=tile))

    def placed(self, number: Scalar, body: Callable[[Scalar, Scalar], Stmt]) -> Stmt:
        """What is done to a tile, given its row and column among the tiles of an image."""
        row, column = self.names.var("row"), self.names.var("column")
        there = And(Lt(row, self.down), Lt(column, self.across))  # it is, as the number shows
        made: Stmt = Branch(there, body(row, column), NOTHING)
        most = Max(self.across, index(1))
        return Bind(row, number // most, Bind(column, number % most, made))

    def multiply(self, count: Scalar) -> Stmt:
        """A product of matrices for each place of a tile."""
        steps = self.plan.tile.steps
        done = self.names.var("done")
        rest = (count - done + (REST - 1)) // REST
        made = self.multiplied((count // steps, steps, 0), (rest, REST, done))
        return Bind(done, count // steps * steps, made)

    def finish(self, n: Scalar, first: Scalar, count: Scalar) -> Stmt:
        """The results of a block, some tiles of a row at a time, and what is done to each.

        What is beyond the last tile of a row is that tile again, and not stored.
        """
        size, tiles = self.of.of.size, max(1, self.plan.whole // self.of.of.size)
        names = ("top", "row", "base", "low", "high", "start")
        top, row, base, low, high, start = (self.names.var(each) for each in names)
        across = Max(self.across, index(1))

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

        def line(number: Scalar) -> Stmt:
            # Where the tiles of the block begin and end in this row.
            strips = (high - low + (tiles - 1)) // tiles
            fits = And(Lt(row, self.down), Le(self.end, self.result[1]))  # they do
            made: Stmt = Branch(fits, self.nest((strips, "serial"), body=some), NOTHING)
            made = Bind(self.end, Min(high * size, self.result[1]), made)
            made = Bind(high, Min(count - base, self.across), made)
            made = Bind(low, Max(index(0) - base, index(0)), made)
            return Bind(row, top + number, Bind(base, row * self.across - first, made))

        rows = (first + count + (across - 1)) // across - top
        return Bind(top, first // across, self.nest((rows, self.shared), body=line))

    def row_inside(self, row: Scalar, stmt: Stmt) -> Stmt:
        """A statement for a row of a tile, if that is in the result."""
        return Branch(Lt(row, self.result[0]), stmt, NOTHING)

    def column_inside(self, column: Scalar, stmt: Stmt) -> Stmt:
        """A statement for a column of a tile of the block, if that is in the result."""
        return Branch(Lt(column, self.end), stmt, NOTHING)
