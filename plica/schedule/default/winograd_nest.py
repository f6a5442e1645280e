"""The loops of a Winograd convolution, as they are to run.

    room    the data with its border, channels last                     room[h, w, c]
    for blocks of rows of tiles, or of parts of a row:
        data      (B x Bᵀ) of each tile, lanes over channels            data[p, q, c, s, lane]
        product   a matrix product for each of the places p of a tile   product[p, q, o, s, lane]
        out       f(A (product) Aᵀ) of some tiles, lanes over outputs, then over a row

A tile of a block is step s of pass q over it.  Where several cores share the blocks, each has
`data` and `product` of its own, which stay in its cache; where there are fewer blocks than cores,
they share each of the three steps.  A tile is in registers from when it is read until it is
transformed.  Where lanes change from one axis to another, a square of elements is turned there.
"""

from __future__ import annotations

from collections.abc import Callable

from plica.ir.loop.scalar import Lit, Lt, Min, Scalar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.schedule.default.winograd_plan import WinogradPlan, WinogradShape
from plica.schedule.default.winograd_step import TilePasses, WinogradSteps, power


class WinogradWriter(WinogradSteps):
    """Writes the kernel for images of a size that is known."""

    def __init__(  # what was found, and what to do about it
        self,
        whole: Stages,
        fold: Each,
        epilogue: Each | None,
        of: WinogradShape,
        plan: WinogradPlan,
    ) -> None:
        super().__init__(whole, fold, epilogue, of, plan)
        self.of = of
        span = of.of.span
        down, across = of.tiles
        self.count = plan.rows * plan.columns
        self.parts = across // plan.columns
        self.room = self.buffer("room", down * of.of.size + 2, across * of.of.size + 2, of.channels)
        own = (plan.teams,) if plan.teams > 1 else ()
        passes, steps = -(-self.count // plan.tile.steps), plan.tile.steps
        inner, outer = of.channels // plan.inner, of.outputs // plan.outer
        self.data = self.buffer("data", *own, span**2, passes, inner, steps, plan.inner)
        self.product = self.buffer("product", *own, span**2, passes, outer, steps, plan.outer)

    def formed(self) -> Stages:
        """All of it: the weight is packed, and the rest has the loops it should have."""
        of = self.of
        down, _ = of.tiles
        blocks = down // self.plan.rows * self.parts

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
        return self.packed(body)

    def copy(self, n: Scalar) -> Stmt:
        """The data with its border, channels last: turned a square of elements at a time."""
        of, lanes = self.of, self.plan.inner
        height, width, channels = (known(each) or 0 for each in self.room.shape)
        (top, left), (rows, columns) = of.before, of.size
        many = power(min(columns, self.plan.whole))
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

    def transform(self, b: Scalar) -> Stmt:
        """The tiles of a block, each in two steps: columns first, then rows."""
        of, lanes = self.of, self.plan.inner
        size, columns = of.of.size, self.plan.columns

        def tile(r: Scalar, t: Scalar, c: Scalar) -> Stmt:
            row, column = self.place(b, r, t)
            return self.transformed(row * size, column * size, r * columns + t, c)

        return self.nest(
            (self.plan.rows, self.shared), (columns, "serial"), (of.channels // lanes, "serial"),
            body=tile,
        )  # fmt: skip

    def place(self, b: Scalar, r: Scalar, t: Scalar) -> tuple[Scalar, Scalar]:
        """The row and the column of a tile of the image, by those in its block."""
        if self.parts == 1:
            return b * self.plan.rows + r, t
        return b // self.parts * self.plan.rows + r, b % self.parts * self.plan.columns + t

    def multiply(self) -> Stmt:
        """A product of matrices for each place of a tile."""
        steps = self.plan.tile.steps
        passes, left = divmod(self.count, steps)
        last = [TilePasses(1, left, passes * steps)] if left else []
        return self.multiplied(TilePasses(passes, steps), *last)

    def tile_place(self, p: Scalar, c: Scalar, tile: Scalar, v: Scalar) -> tuple[Scalar, ...]:
        """Where data and products of a tile are: those of a pass lie together, on few pages."""
        steps = self.plan.tile.steps
        return (*self.team, p, tile // steps, c, tile % steps, v)

    def pass_place(
        self, p: Scalar, c: Scalar, at: tuple[Scalar, Scalar], s: Scalar, v: Scalar
    ) -> tuple[Scalar, ...]:
        """The same of a step of a pass."""
        return (*self.team, p, at[0], c, s, v)

    def finish(self, n: Scalar, b: Scalar) -> Stmt:
        """The results of a block, some tiles of a row at a time, and what is done to each."""
        of, size, columns = self.of, self.of.of.size, self.plan.columns
        tiles = power(min(columns, max(1, self.plan.whole // size)))

        def row(r: Scalar) -> Stmt:
            def part(start: Scalar) -> Stmt:
                down, across = self.place(b, r, start)

                def several(o: Scalar) -> Stmt:
                    return self.finished(
                        (n, o, down * size, across * size),
                        tiles,
                        lambda at, body: body(r * columns + (start + at)),
                    )

                return self.nest((of.outputs // self.plan.outer, "serial"), body=several)

            return self.strips(columns, tiles, part)

        return self.nest((self.plan.rows, self.shared), body=row)

    def row_inside(self, row: Scalar, stmt: Stmt) -> Stmt:
        """A statement for a row of a tile, if that is in the result."""
        return self._inside(row, 0, stmt)

    def column_inside(self, column: Scalar, stmt: Stmt) -> Stmt:
        """A statement for a column of a tile, if that is in the result."""
        return self._inside(column, 1, stmt)

    def _inside(self, at: Scalar, axis: int, stmt: Stmt) -> Stmt:
        size = self.of.result[axis]
        whole = self.of.tiles[axis] * self.of.of.size <= size
        return stmt if whole else Branch(Lt(at, index(size)), stmt, NOTHING)
