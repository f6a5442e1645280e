"""The loops of a Winograd convolution, as they are to run.

    for blocks of rows of tiles, or of parts of a row:
        room      the data with its border, channels last               room[h, w, c]
        data      (B x Bᵀ) of each tile, lanes over channels            data[p, q, c, s, lane]
        product   a matrix product for each of the places p of a tile   product[p, q, o, s, lane]
        out       f(A (product) Aᵀ) of some tiles, lanes over outputs, then over a row

A tile of a block is step s of pass q over it.  Where several cores share the blocks, each has
`data` and `product` of its own, which stay in its cache; where there are fewer blocks than cores,
they share each of the steps.  The room is of a block, too, and keeps the rows that it has in common
with the one before: what is copied is read while it is near.  It is of the whole image, and made
once, where blocks are parts of a row, or cores share steps.  A tile is in registers from when it is
read until it is transformed.  Where lanes change from one axis to another, a square of elements is
turned there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.loop.scalar import And, Le, Lit, Load, Lt, Min, Scalar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.schedule.default.winograd_plan import WinogradPlan, WinogradShape
from plica.schedule.default.winograd_step import TilePasses, WinogradSteps, power

BORDER: Final = 2
"""Rows that tiles below one another have in common, and columns of those side by side."""


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
        # Whether a block has a room of its own.
        self.near = self.parts == 1 and plan.rows < down and (plan.teams > 1 or not plan.shares)
        own = (plan.teams,) if plan.teams > 1 else ()
        rows, teams = (plan.rows, own) if self.near else (down, ())
        self.room = self.buffer(
            "room", *teams, rows * of.of.size + BORDER, across * of.of.size + BORDER, of.channels
        )
        passes, steps = -(-self.count // plan.tile.steps), plan.tile.steps
        inner, outer = of.channels // plan.inner, of.outputs // plan.outer
        self.data = self.buffer("data", *own, span**2, passes, inner, steps, plan.inner)
        self.product = self.buffer("product", *own, span**2, passes, outer, steps, plan.outer)

    def formed(self) -> Stages:
        """All of it: the weight is packed, and the rest has the loops it should have."""
        of = self.of
        down, _ = of.tiles
        blocks = down // self.plan.rows * self.parts

        def block(n: Scalar, b: Scalar, number: Scalar) -> Stmt:
            copied = self.copy_block(n, b, number) if self.near else NOTHING
            return seq(copied, self.transform(b), self.multiply(), self.finish(n, b))

        def image(n: Scalar) -> Stmt:
            copied = NOTHING if self.near else self.copy(n)
            if self.plan.teams == 1:
                return seq(copied, self.nest((blocks, "serial"), body=lambda b: block(n, b, b)))
            each = -(-blocks // self.plan.teams)

            def own(team: Scalar, at: Scalar) -> Stmt:
                b = team * each + at
                self.team = (team,)
                made = block(n, b, at)
                self.team = ()
                fits = each * self.plan.teams == blocks
                return made if fits else Branch(Lt(b, index(blocks)), made, NOTHING)

            return seq(copied, self.nest((self.plan.teams, "parallel"), (each, "serial"), body=own))

        body = self.nest((of.batch, "serial"), body=image)
        return self.packed(body)

    def copy(self, n: Scalar) -> Stmt:
        """The data with its border, channels last."""
        top, rows = self.of.before[0], self.of.size[0]
        height = known(self.room.shape[0]) or 0
        return seq(
            self.nest((top, "serial"), body=self.zero_row),
            self.nest((rows, self.shared), body=lambda h: self.copied_row(n, h, h + top)),
            self.nest(
                (height - top - rows, "serial"), body=lambda h: self.zero_row(h + (top + rows))
            ),
        )

    def copy_block(self, n: Scalar, b: Scalar, number: Scalar) -> Stmt:
        """The same of what the tiles of a block read, which stays in a cache until they do; what
        the block before it read as well is there."""
        top, rows = self.of.before[0], self.of.size[0]
        width, channels = (known(each) or 0 for each in self.room.shape[-2:])
        tall, lanes = self.plan.rows * self.of.of.size, self.plan.inner

        def kept(at: Scalar) -> Stmt:
            def vector(w: Scalar, c: Scalar, v: Scalar) -> Stmt:
                there = (w, c * lanes + v)
                value = Load(self.room, (*self.room_team, at + tall, *there))
                return Store(self.room, (*self.room_team, at, *there), value)

            return self.nest(
                (width, "serial"), (channels // lanes, "serial"), (lanes, "vectorized"),
                body=vector,
            )  # fmt: skip

        def row(at: Scalar) -> Stmt:
            h = b * tall + at - top
            inside = And(Le(index(0), h), Lt(h, index(rows)))
            made = Branch(inside, self.copied_row(n, h, at), self.zero_row(at))
            again = And(Lt(index(0), number), Lt(at, index(BORDER)))
            return Branch(again, kept(at), made)

        return self.nest((tall + BORDER, "serial"), body=row)

    def zero_row(self, at: Scalar) -> Stmt:
        """A row of the border."""
        return self.zeros(at, 0, known(self.room.shape[-2]) or 0)

    def zeros(self, at: Scalar, left: int, width: int) -> Stmt:
        """Zeros in a given number of columns of a row, from one on."""
        of, lanes = self.of, self.plan.inner
        if not width:
            return NOTHING
        return self.nest(
            (width, "serial"), (of.channels // lanes, "serial"), (lanes, "vectorized"),
            body=lambda w, c, v: Store(
                self.room, (*self.room_team, at, w + left, c * lanes + v), Lit(0, of.x.dtype)
            ),
        )  # fmt: skip

    @property
    def room_team(self) -> tuple[Scalar, ...]:
        """Whose room it is, where each team has one."""
        return self.team if self.near else ()

    def copied_row(self, n: Scalar, h: Scalar, at: Scalar) -> Stmt:
        """A row of the data between its borders: turned a square of elements at a time."""
        of, lanes = self.of, self.plan.inner
        left, columns = of.before[1], of.size[1]
        width = known(self.room.shape[-2]) or 0
        many = power(min(columns, self.plan.whole))
        square = self.buffer("square", lanes, self.plan.whole, scope="local")

        def turned(c: Scalar, start: Scalar) -> Stmt:
            rows_ = self.nest(
                (lanes, "unrolled"), (many, "vectorized"),
                body=lambda k, v: Store(
                    square, (k, v), of.x[n, c * lanes + k, h, start + v]
                ),
            )  # fmt: skip
            columns_ = self.nest(
                (many, "unrolled"), (lanes, "vectorized"),
                body=lambda k, v: Store(
                    self.room, (*self.room_team, at, start + k + left, c * lanes + v), square[v, k]
                ),
            )  # fmt: skip
            return Alloc(square, seq(rows_, columns_))

        def part(c: Scalar) -> Stmt:
            return self.strips(columns, many, lambda start: turned(c, start))

        return seq(
            self.zeros(at, 0, left),
            self.nest((of.channels // lanes, "serial"), body=part),
            self.zeros(at, left + columns, width - left - columns),
        )

    def strips(self, whole: int, many: int, body: Callable[[Scalar], Stmt]) -> Stmt:
        """This many at a time until the end; the last may overlap those before it."""
        last = index(whole - many)

        def part(at: Scalar) -> Stmt:
            return body(Min(at * many, last) if whole % many else at * many)

        return self.nest((-(-whole // many), "serial"), body=part)

    def transform(self, b: Scalar) -> Stmt:
        """The tiles of a block, each in two steps: columns first, then rows."""
        of, lanes = self.of, self.plan.inner
        size, columns = of.of.size, self.plan.columns

        def tile(r: Scalar, t: Scalar, c: Scalar) -> Stmt:
            row, column = (r, t) if self.near else self.place(b, r, t)
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
