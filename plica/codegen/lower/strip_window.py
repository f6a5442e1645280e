"""Strip windows: windows over one channel in tiles of rows, one text for all of them.

Depthwise convolutions and pools with a border.  A tile is a vector of columns, a strip, and some
rows high: what is read serves all windows it is in, and its sums are all written out.

    for n, c:
        for tiles of rows, of which the last ends with the image:
            the first strip, of which some lanes begin before the image
            strips that are inside
            the last strip, which ends with the image: some lanes end behind it

A row that may be outside is asked for in every tile, and is the same for all lanes: so nothing is
copied and no tile has a text of its own.  Where a tile ends with the image some elements are made
again that the one before it made.  How far the last strip is from the end of a row is known when
the code is made, for each remainder of the stride, so lanes that are outside are, too.

Law: each sum has its terms in the order that it says, unless sums are free to take another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Final

from attrs import evolve

from plica.codegen.lower.image_window import BLOCKS, ImageWindow
from plica.codegen.lower.loop_order import loops_around
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.type import dim, known, product
from plica.schedule.default.depthwise import sums_under_way
from plica.schedule.default.machine import PAGE, Machine
from plica.schedule.default.share import pays

TALL: Final = 2  # how many times as many rows as keep products busy a tile has, at most
SPARE: Final = 3  # registers for weights, at least
USUAL: Final = (7, 14, 28, 56)  # rows of images of which it is not known
LOOP: Final = 12
"""Instructions of a tile beside those, about: of its loop, for weights, and for rows that may be
outside."""

LONG: Final = 400  # multiply-adds in the text of a tile, at most, where it is not the least tile
WIDE: Final = 25
"""Places of a window that are written out in strips that are inside, at most; of larger ones a
column of them."""


class StripWriter:
    """Writes the loops: how high a tile is, and what of it is inside of the image."""

    def __init__(
        self, of: ImageWindow, machine: Machine, *, free: bool, narrow: bool = False
    ) -> None:
        self.of, self.names, self.narrow = of, of.names, narrow
        self.rows, self.columns = of.rows, of.columns
        self.lanes = machine.lanes(of.data.buffer.dtype)
        sizes = dict(zip(of.reduction.axes, of.reduction.extents, strict=True))
        along = [axis for axis in sizes if axis in free_vars(of.data.indices[-1])]
        rest = [axis for axis in sizes if axis not in along]
        self.reduction = of.reduction
        self.looped: tuple[sc.ScalarVar, ...] = ()
        self.fetches = not machine.masks and not _is_near(of.data.buffer, machine)
        down = prod([known(sizes[var]) or 0 for var in rest])
        self.high = sums_under_way(machine)
        if free:
            by_columns = down >= 2 * self.rows.step
            if not narrow:  # a narrow image is small, and its text is one more
                self.high = self._high(down, machine, by_columns)
            if by_columns:
                # What is read of a column is in registers until all rows have it.
                order = (*along, *rest)
                extents = tuple([sizes[var] for var in order])
                self.reduction = evolve(of.reduction, axes=order, extents=extents)
                self.looped = tuple(along) if of.taps > WIDE else ()
        if (high := known(self.rows.made)) is not None:
            self.high = min(self.high, high)
        self.blocks = BLOCKS if self._pays(machine) else 1

    def _pays(self, machine: Machine) -> bool:
        """Whether cores share the channels; of open sizes, if there are several cores."""
        whole = self.of.stages
        made = known(product(self.of.fold.out.shape))
        if len(self.of.fold.axes) < 3 or made is None:  # a single image is not shared
            return machine.cores > 1 and len(self.of.fold.axes) > 2
        return pays(machine, made * self.of.taps, (*whole.inputs, whole.result))

    def _high(self, down: int, machine: Machine, by_columns: bool) -> int:
        """How many rows a tile has: as many as take the fewest instructions for each, of those
        whose sums, and what a column reads, are in registers."""
        taps, step, size = self.of.taps, self.rows.step, known(self.rows.made)
        least = sums_under_way(machine)

        def read(high: int) -> int:
            return (high - 1) * step + down

        def fits(high: int) -> bool:
            apart = step if by_columns or machine.masks else 1  # lanes of a stride come by several
            held = high + read(high) * apart + SPARE
            return held <= machine.registers and high * taps <= LONG

        def issued(high: int) -> float:
            tiles = sum([-(-rows // high) / rows for rows in (USUAL if size is None else (size,))])
            columns = taps // down
            return tiles * (high * (taps + 2) + read(high) * (columns + self.fetches) + LOOP)

        some = [high for high in range(least, TALL * least + 1) if high == least or fits(high)]
        return min(some, key=issued)

    def kernel(self) -> Kernel:
        """All of it."""
        return self.of.kernel(self.image(), self.names.var("block"), self.blocks)

    def image(self) -> Stmt:
        """The windows of an image in tiles of rows; those of which a tile would have too many are
        done one by one."""
        size, high = self.rows.made, self.high
        tile, row, single = (self.names.var(each) for each in ("tile", "row", "single"))
        if (count := known(size)) is not None:
            tiles, place = sc.index(-(-count // high)), tile * high
            if not count % high:
                return loops_around([(tile, tiles)], self._line(place, high))
            last = sc.Min(place, sc.index(count - high))
            return loops_around([(tile, tiles)], Bind(row, last, self._line(row, high)))
        few = (high + 1) // 2
        many, left = self.names.var("many"), self.names.var("left")
        # Of rows that are left few are done one by one, more of them in a tile that ends there.
        whole = (size + (high - few)) // high
        begun = sc.Select(sc.Le(sc.index(high), size), whole, sc.index(0))
        step, rest = self.rows.step, min(self.rows.remainders)

        def within(first: sc.Scalar, count: int) -> sc.Scalar:
            """That a given number of rows are there, as they are, and what that says of those they
            read."""
            there = sc.And(sc.Le(sc.index(0), first), sc.Le(first + count, size))
            return sc.And(there, sc.Le((first + count) * step + rest, self.rows.read))

        lines = Branch(within(row, high), self._line(row, high), NOTHING)
        several = loops_around([(tile, many)], Bind(row, sc.Min(tile * high, size - high), lines))
        line = Branch(within(left, 1), self._line(left, 1), NOTHING)
        one = Bind(left, many * high + single, line)
        others = loops_around([(single, sc.Max(size - many * high, sc.index(0)))], one)
        return Bind(many, begun, Seq((several, others)))

    def _line(self, row: sc.Scalar, many: int) -> Stmt:
        """All windows of some rows: strips from the first to the last, which ends with them."""
        of, lanes = self.columns, self.lanes
        if self.narrow:
            strip = self.names.var("strip")
            at = strip * lanes
            statement = self._tile(row, many, (at, at * of.step), (True, True))
            return loops_around([(strip, dim((of.made + (lanes - 1)) // lanes))], statement)

        def made(at: sc.Scalar, before: bool, behind: bool, rest: int | None = None) -> Stmt:
            begin = at * of.step
            if rest is not None:
                begin = of.read - (rest + lanes * of.step)
            return self._tile(row, many, (at, begin), (before, behind))

        if (wide := known(of.made)) is not None:
            return self._known_line(wide, made)
        several = self._between(made)
        last: Stmt = NOTHING
        for rest in of.remainders:
            least = sc.Le(sc.index(lanes * of.step + max(0, rest - of.start)), of.read)
            here = sc.And(sc.Eq(of.read, of.made * of.step + rest), least)
            here = sc.And(here, sc.Le(sc.index(lanes), of.made))
            last = Branch(here, made(of.made - lanes, False, True, rest), last)
        begin = sc.And(
            sc.Le(sc.index(lanes * of.step + of.beyond), of.read), sc.Le(sc.index(lanes), of.made)
        )
        first = Branch(begin, made(sc.index(0), True, False), NOTHING)
        return Seq((first, several, last))

    def _known_line(self, wide: int, made: Callable[[sc.Scalar, bool, bool], Stmt]) -> Stmt:
        """The strips of rows of known length; all written out where none is inside."""
        of, lanes, strips = self.columns, self.lanes, -(-wide // self.lanes)
        inside = wide - of.behind - lanes
        if inside < max(of.before, 1) or strips <= 2:
            places = [min(at * lanes, wide - lanes) for at in range(strips)]
            return Seq(tuple([made(sc.index(at), True, True) for at in places]))
        strip, column = self.names.var("strip"), self.names.var("column")
        at = (strip + 1) * lanes
        if (strips - 1) * lanes <= wide - of.behind:
            between = made(at, False, False)
        else:
            between = Bind(column, sc.Min(at, sc.index(inside)), made(column, False, False))
        several = loops_around([(strip, sc.index(strips - 2))], between)
        first, last = [made(sc.index(at), True, True) for at in (0, wide - lanes)]
        return Seq((first, several, last))

    def _between(self, made: Callable[[sc.Scalar, bool, bool], Stmt]) -> Stmt:
        """The strips between the first and the last of a row of open length, all inside."""
        of, lanes, step = self.columns, self.lanes, self.columns.step
        strip, column, stop = (self.names.var(each) for each in ("strip", "column", "stop"))
        at, last = (strip + 1) * lanes, (of.made - 1) // lanes
        if of.behind <= 1:  # those before the last end one before it, and so inside
            beyond = max(of.beyond, step + min(of.remainders))
            fits = sc.And(
                sc.Le(stop * (lanes * step) + beyond, of.read), sc.Le(stop * lanes, of.made)
            )
            several = loops_around([(strip, stop - 1)], made(at, False, False))
            return Bind(stop, last, Branch(fits, several, NOTHING))
        inside = dim(of.made - (of.behind + lanes))
        upper = sc.Le(column * step + (lanes * step + of.beyond), of.read)
        both = sc.And(upper, sc.Le(column + lanes, of.made))
        fits = sc.And(sc.Le(sc.index(of.before), column), both)  # it does
        branch = Branch(fits, made(column, False, False), NOTHING)
        return loops_around([(strip, last - 1)], Bind(column, sc.Min(at, inside), branch))

    def _tile(
        self,
        row: sc.Scalar,
        many: int,
        columns: tuple[sc.Scalar, sc.Scalar],
        outside: tuple[bool, bool],
    ) -> Stmt:
        """The windows of a given number of rows, of lanes that may be outside before or behind."""
        of, (column, begin) = self.of, columns
        *around, at_row, at_column = of.data.indices

        def read(near: sc.ScalarVar, lane: sc.ScalarVar) -> sc.Scalar:
            here = dim(substitute(at_row, {self.rows.axis: row + near}))
            there = dim(substitute(at_column, {self.columns.axis: lane}) + begin)
            asked: tuple[tuple[sc.Scalar, bool], ...] = (
                (sc.Le(sc.index(0), here), self.rows.before > 0),
                (sc.Lt(here, self.rows.read), self.rows.behind > 0),
                (sc.Le(sc.index(0), there), outside[0]),
                (sc.Lt(there, self.columns.read), outside[1]),
            )
            load = sc.Load(of.data.buffer, (*around, here, there))
            tests = [test for test, needed in asked if needed]
            return sc.Select(reduce(sc.And, tests), load, of.fill) if tests else load

        tile = of.tile(
            row, many, column, self.lanes, read, reduction=self.reduction,
            looped=() if any(outside) else self.looped, narrow=self.narrow,
        )  # fmt: skip
        ahead = many * self.rows.step + self.rows.beyond
        return _fetching(tile, of.data.buffer, ahead) if self.fetches else tile


def _is_near(data: sc.Buffer, machine: Machine) -> bool:
    """Whether images are near, or so small that a processor foresees the next ones."""
    whole, image = [known(product(scalars)) for scalars in (data.shape, data.shape[-2:])]
    size = data.dtype.bytes
    return (whole is not None and whole * size <= machine.cache(1)) or (
        image is not None and image * size <= PAGE
    )


def _fetching(tile: Stmt, data: sc.Buffer, rows: int) -> Stmt:
    """A tile that asks for the rows of the next one: each has so few lines that no processor
    foresees which come next."""

    def told(stmt: Term) -> Term:
        match stmt:
            case For(_, _, "vectorized", Store() as store) if data in free_vars(store.value):
                return evolve(stmt, annotations=(("fetch_rows", rows),))
            case _:
                return stmt

    statement = map_bottom_up(told, tile)
    assert isinstance(statement, Stmt)
    return statement
