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

from attrs import evolve, frozen

from plica.codegen.lower.image_window import BLOCKS, ImageWindow, WindowSide
from plica.codegen.lower.loop_order import LoopOrder, StoredElement, loops_around, replaced
from plica.codegen.lower.nest import in_registers, open_sizes
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stages import Names, Stages
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.type import dim, known, polynomial, product
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


@frozen(eq=False)
class RowEnd:
    """How far windows reach beyond the ends of an axis: the sizes of the result and of the data,
    and by how much the latter may exceed `step` times the former."""

    side: WindowSide
    made: sc.Scalar
    read: sc.Scalar
    remainders: tuple[int, ...]

    @property
    def before(self) -> int:
        """How many windows begin before the axis, at most."""
        return -(self.side.start // self.side.step)

    @property
    def behind(self) -> int:
        """How many windows end behind the axis, at most."""
        return max(0, -((min(self.remainders) - self.side.beyond) // self.side.step))


def row_end(side: WindowSide, made: sc.Scalar, read: sc.Scalar) -> RowEnd | None:
    """How windows end, None where the size of the result does not follow from that of the data.

    A quotient times its divisor is what was divided, less one of the remainders.
    """
    rest, less = read - made * side.step, 1
    quotients = [
        (atoms[0], factor)
        for atoms, factor in polynomial(rest).values()
        if len(atoms) == 1 and isinstance(atoms[0], sc.FloorDiv)
    ]
    for quotient, factor in quotients[:1]:
        assert isinstance(quotient, sc.FloorDiv)
        less = -factor
        if less != known(quotient.right):
            return None
        rest = rest + quotient * less - quotient.left
    found = polynomial(rest)
    if any(atoms for atoms, _ in found.values()):
        return None
    least = sum([factor for _, factor in found.values()])
    return RowEnd(side, made, read, tuple(range(least, least + less)))


class StripWriter:
    """Writes the loops: how high a tile is, and what of it is inside of the image."""

    def __init__(
        self, whole: Stages, of: ImageWindow, ends: tuple[RowEnd, RowEnd], names: Names,
        machine: Machine, *, free: bool, narrow: bool = False,
    ) -> None:  # fmt: skip
        self.whole, self.of, self.names, self.narrow = whole, of, names, narrow
        self.rows, self.columns = ends
        self.lanes = machine.lanes(of.data.buffer.dtype)
        along = [axis for axis in of.reduction.axes if axis in free_vars(of.data.indices[-1])]
        rest = [axis for axis in of.reduction.axes if axis not in along]
        sizes = dict(zip(of.reduction.axes, of.reduction.extents, strict=True))
        self.taps = prod([known(extent) or 0 for extent in of.reduction.extents])
        self.reduction = of.reduction
        self.looped: tuple[sc.ScalarVar, ...] = ()
        self.blocks = BLOCKS if self._pays(machine) else 1
        high = known(self.rows.made)
        self.fetches = not machine.masks and not _is_near(of.data.buffer, machine)
        down = prod([known(sizes[var]) or 0 for var in rest])
        self.high = sums_under_way(machine)
        if free:
            by_columns = down >= 2 * self.rows.side.step
            if not narrow:  # a narrow image is small, and its text is one more
                self.high = self._high(down, machine, by_columns)
            if by_columns:
                # What is read of a column is in registers until all rows have it.
                order = (*along, *rest)
                extents = tuple([sizes[var] for var in order])
                self.reduction = evolve(of.reduction, axes=order, extents=extents)
                self.looped = tuple(along) if self.taps > WIDE else ()
        if high is not None:
            self.high = min(self.high, high)

    def _pays(self, machine: Machine) -> bool:
        """Whether cores share the channels; of open sizes, if there are several cores."""
        made = known(product(self.of.fold.out.shape))
        if len(self.of.fold.axes) < 3 or made is None:  # a single image is not shared
            return machine.cores > 1 and len(self.of.fold.axes) > 2
        return pays(machine, made * self.taps, (*self.whole.inputs, self.whole.result))

    def _high(self, down: int, machine: Machine, by_columns: bool) -> int:
        """How many rows a tile has: as many as take the fewest instructions for each, of those
        whose sums, and what a column reads, are in registers."""
        taps, step, size = self.taps, self.rows.side.step, known(self.rows.made)
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

    def kernel(self, after: StoredElement | None) -> Kernel:
        """All of it."""
        fold = self.of.fold
        block, part = self.names.var("block"), self.names.var("part")
        around = list(zip(fold.axes, fold.out.shape, strict=True))[:-2]
        body = self.image(after)
        if self.blocks > 1:
            axis, size = around.pop()
            scalar = (size + (self.blocks - 1)) // self.blocks
            there = block * scalar + part
            body = Branch(sc.Lt(there, size), substitute(body, {axis: there}), NOTHING)
            around.append((part, scalar))
        body = loops_around(around, body)
        if self.blocks > 1:
            body = For(block, sc.index(self.blocks), "parallel", body)
        params = (*self.whole.inputs, self.whole.result)
        return Kernel(open_sizes(params, body), params, len(self.whole.inputs), body)

    def image(self, after: StoredElement | None) -> Stmt:
        """The windows of an image in tiles of rows; those of which a tile would have too many are
        done one by one."""
        size, high = self.rows.made, self.high
        tile, row, single = (self.names.var(each) for each in ("tile", "row", "single"))
        if (count := known(size)) is not None:
            tiles, place = sc.index(-(-count // high)), tile * high
            if not count % high:
                return loops_around([(tile, tiles)], self._line(place, high, after))
            last = sc.Min(place, sc.index(count - high))
            return loops_around([(tile, tiles)], Bind(row, last, self._line(row, high, after)))
        few = (high + 1) // 2
        many, left = self.names.var("many"), self.names.var("left")
        # Of rows that are left few are done one by one, more of them in a tile that ends there.
        whole = (size + (high - few)) // high
        begun = sc.Select(sc.Le(sc.index(high), size), whole, sc.index(0))
        step, rest = self.rows.side.step, min(self.rows.remainders)

        def within(first: sc.Scalar, count: int) -> sc.Scalar:
            """That a given number of rows are there, as they are, and what that says of those they
            read."""
            there = sc.And(sc.Le(sc.index(0), first), sc.Le(first + count, size))
            return sc.And(there, sc.Le((first + count) * step + rest, self.rows.read))

        lines = Branch(within(row, high), self._line(row, high, after), NOTHING)
        several = loops_around([(tile, many)], Bind(row, sc.Min(tile * high, size - high), lines))
        line = Branch(within(left, 1), self._line(left, 1, after), NOTHING)
        one = Bind(left, many * high + single, line)
        others = loops_around([(single, sc.Max(size - many * high, sc.index(0)))], one)
        return Bind(many, begun, Seq((several, others)))

    def _line(self, row: sc.Scalar, many: int, after: StoredElement | None) -> Stmt:
        """All windows of some rows: strips from the first to the last, which ends with them."""
        of, lanes = self.columns, self.lanes
        if self.narrow:
            strip = self.names.var("strip")
            at = strip * lanes
            statement = self._tile(row, many, (at, at * of.side.step), after, (True, True))
            return loops_around([(strip, dim((of.made + (lanes - 1)) // lanes))], statement)

        def made(at: sc.Scalar, before: bool, behind: bool, rest: int | None = None) -> Stmt:
            begin = at * of.side.step
            if rest is not None:
                begin = of.read - (rest + lanes * of.side.step)
            return self._tile(row, many, (at, begin), after, (before, behind))

        if (wide := known(of.made)) is not None:
            return self._known_line(wide, made)
        several = self._between(made)
        last: Stmt = NOTHING
        for rest in of.remainders:
            least = sc.Le(sc.index(lanes * of.side.step + max(0, rest - of.side.start)), of.read)
            here = sc.And(sc.Eq(of.read, of.made * of.side.step + rest), least)
            here = sc.And(here, sc.Le(sc.index(lanes), of.made))
            last = Branch(here, made(of.made - lanes, False, True, rest), last)
        begin = sc.And(
            sc.Le(sc.index(lanes * of.side.step + of.side.beyond), of.read),
            sc.Le(sc.index(lanes), of.made),
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
        of, lanes, step = self.columns, self.lanes, self.columns.side.step
        strip, column, stop = (self.names.var(each) for each in ("strip", "column", "stop"))
        at, last = (strip + 1) * lanes, (of.made - 1) // lanes
        if of.behind <= 1:  # those before the last end one before it, and so inside
            beyond = max(of.side.beyond, step + min(of.remainders))
            fits = sc.And(
                sc.Le(stop * (lanes * step) + beyond, of.read), sc.Le(stop * lanes, of.made)
            )
            several = loops_around([(strip, stop - 1)], made(at, False, False))
            return Bind(stop, last, Branch(fits, several, NOTHING))
        inside = dim(of.made - (of.behind + lanes))
        upper = sc.Le(column * step + (lanes * step + of.side.beyond), of.read)
        both = sc.And(upper, sc.Le(column + lanes, of.made))
        fits = sc.And(sc.Le(sc.index(of.before), column), both)  # it does
        branch = Branch(fits, made(column, False, False), NOTHING)
        return loops_around([(strip, last - 1)], Bind(column, sc.Min(at, inside), branch))

    def _tile(
        self,
        row: sc.Scalar,
        many: int,
        columns: tuple[sc.Scalar, sc.Scalar],
        after: StoredElement | None,
        outside: tuple[bool, bool],
    ) -> Stmt:
        """The windows of a given number of rows, of lanes that may be outside before or behind."""
        of, (down, along) = self.of, self.of.sides
        near, lane = self.names.var("near"), self.names.var("lane")
        column, begin = columns
        here: dict[sc.ScalarVar, sc.Scalar] = {down.axis: row + near, along.axis: column + lane}
        at_row, at_column = of.data.indices[-2:]
        at_row = dim(substitute(at_row, {down.axis: row + near}))
        at_column = dim(substitute(at_column, {along.axis: lane}) + begin)
        asked: tuple[tuple[sc.Scalar, bool], ...] = (
            (sc.Le(sc.index(0), at_row), self.rows.before > 0),
            (sc.Lt(at_row, self.rows.read), self.rows.behind > 0),
            (sc.Le(sc.index(0), at_column), outside[0]),
            (sc.Lt(at_column, self.columns.read), outside[1]),
        )
        read: sc.Scalar = sc.Load(of.data.buffer, (*of.data.indices[:-2], at_row, at_column))
        if tests := [test for test, needed in asked if needed]:
            read = sc.Select(reduce(sc.And, tests), read, of.fill)
        value = substitute(replaced(self.reduction, {of.inside: read}), {**here})
        inside = not any(outside)
        written = [var for var in self.reduction.axes if not inside or var not in self.looped]
        walk = LoopOrder(
            ((near, sc.index(many)), (lane, sc.index(self.lanes))),
            tuple([here.get(axis, axis) for axis in of.fold.axes]),
            value,
            2,
            tuple(here.items()),
            "vectorized",
            sc.Lt(here[along.axis], self.columns.made) if self.narrow else None,
            (near, *written),
        )
        tile = in_registers(walk, self.whole.result, after, self.names)
        ahead = many * down.step + down.beyond
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
