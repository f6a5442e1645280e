"""Open windows: windows over one channel, of images of any size.

Depthwise convolutions and pools with a border.  Some rows of an image are copied to where they have
that border and room for whole tiles; a tile is a vector of a row, and a few rows high, so that what
is read serves all windows it is in.  Its sums are all written out.

    for n, c, bands of four rows of tiles:
        room[18, w] = x[n, c, 16 * b - 1 …]                  what stands outside where they end
        for t in range(4), s in range((w + 15) // 16):
            acc[r, lane] += room[4 * t + r + k, 16 * s + lane + l] * w[c, k, l]
            out[n, c, 16 * b + 4 * t + r, 16 * s + lane] = f(acc[r, lane])     where that is inside

What is copied is read while it is still near.  Cores share the channels, and each of them has room
of its own.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import NEAR, LoopOrder, loops_around, replaced
from plica.codegen.lower.nest import StoredElement, in_order, in_registers, open_sizes, stored
from plica.codegen.lower.open_tile import without_units
from plica.core.binding import free_vars, substitute
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, pairs
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.type.dim import dim, known, polynomial
from plica.ir.type.dtype import f32, f64
from plica.schedule.default.contraction import product_of, says_inside
from plica.schedule.default.machine import Machine

TAPS: Final = 49
"""So many terms are written out, at most."""

WRITTEN: Final = 100
"""Terms in the text of a tile, about."""

HIGHEST: Final = 4
"""Rows of a tile, at most."""

BAND: Final = 4
"""Rows of tiles whose data is copied at once: what is copied is still near when it is read."""

BLOCKS: Final = 16
"""Into so many parts the channels are cut, where cores share them."""


@frozen(eq=False)
class _Side:
    """One of the last two axes of the data: `start + step * axis + some terms`, which reach so far
    beyond."""

    axis: sc.ScalarVar
    start: int
    step: int
    reach: int


@frozen(eq=False)
class _Window:
    """A sum over places near one another in an image, and what is read of that."""

    fold: Each
    reduction: sc.Reduce
    inside: sc.Select
    data: sc.Load
    fill: sc.Lit
    sides: tuple[_Side, _Side]


def open_windows(of: Stages, machine: Machine) -> Kernel | None:
    """The loops of stages that are windows of images of open size, None where they are not."""
    of = without_units(of)
    every = pairs(of) if all(isinstance(e, Each) for e in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    if (found := _window(in_order(fold))) is None:
        return None
    after = stored(fold, epilogue)
    places, value = (fold.axes, None) if after is None else (after.indices, after.value)
    if tuple(places[-1:]) != fold.axes[-1:]:
        return None
    names = Names(of, *([] if value is None else [value]))
    return _Writer(of, found, names, machine).kernel(after)


def _window(fold: Each) -> _Window | None:
    """The window that a stage is."""
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.runs or sc.dtype_of(body) not in (f32, f64):
        return None
    if len(fold.axes) < 2:
        return None
    terms = {axis: known(size) or 0 for axis, size in zip(body.axes, body.extents, strict=True)}
    if not 1 < prod(terms.values()) <= TAPS:
        return None
    sizes = terms | {
        axis: n for axis, size in zip(fold.axes, fold.out.shape, strict=True) if (n := known(size))
    }
    if (product := product_of(body, sizes)) is None:
        return None
    data, guards, fill, weight = product
    column, row = fold.axes[-2:]
    inner = {column, row, *terms}
    around = [*data.indices[:-2], *(weight.indices if weight is not None else ())]
    if not guards or not all(says_inside(each, data) for each in guards) or len(data.indices) < 2:
        return None
    if any(not {column, row}.isdisjoint(free_vars(each)) for each in around):
        return None
    if any(not inner.isdisjoint(free_vars(each)) for each in data.indices[:-2]):
        return None
    sides = [
        _side(place, axis, terms)
        for place, axis in zip(data.indices[-2:], (column, row), strict=True)
    ]
    (choice,) = [each for each in (body.body, *body.body._children) if isinstance(each, sc.Select)]
    if sides[0] is None or sides[1] is None or sides[1].step > NEAR:
        return None
    return _Window(fold, body, choice, data, fill, (sides[0], sides[1]))


def _side(place: sc.Scalar, axis: sc.ScalarVar, terms: dict[sc.ScalarVar, int]) -> _Side | None:
    """An index of the data, None where it is none of a window."""
    start, step, reach = 0, 0, 0
    for atoms, factor in polynomial(place).values():
        if not atoms:
            start += factor
        elif atoms == (axis,):
            step = factor
        elif len(atoms) == 1 and isinstance(atoms[0], sc.ScalarVar) and atoms[0] in terms:
            reach += factor * (terms[atoms[0]] - 1)
            if factor < 0:
                return None
        else:
            return None
    return _Side(axis, start, step, reach) if step > 0 and start <= 0 else None


class _Writer:
    """Writes the loops: how large a tile is, and where images have room."""

    def __init__(self, whole: Stages, of: _Window, names: Names, machine: Machine) -> None:
        self.whole, self.of, self.names = whole, of, names
        self.lanes = machine.lanes(of.data.buffer.dtype)
        taps = prod([known(each) or 0 for each in of.reduction.extents])
        self.high = min(HIGHEST, max(2, WRITTEN // taps))
        self.blocks = BLOCKS if machine.cores > 1 else 1
        self.shape = of.fold.out.shape
        self.tiles = (self.shape[-2] + (self.high - 1)) // self.high
        self.strips = (self.shape[-1] + (self.lanes - 1)) // self.lanes
        down, along = of.sides
        self.step, self.more = self.high * down.step, max(0, down.reach + 1 - down.step)
        # A row begins with a vector, whatever its border is.
        before = -(along.start // self.lanes)
        self.left = before * self.lanes
        more = -(-max(0, along.reach + 1 - along.step + along.start) // self.lanes)
        self.vectors = dim(self.strips * along.step + before + more)
        self.rows = sc.index(BAND * self.step + self.more)
        shape = (sc.index(self.blocks), self.rows, dim(self.vectors * self.lanes))
        self.room = sc.Buffer(names.name("room"), shape, of.data.buffer.dtype)

    def kernel(self, after: StoredElement | None) -> Kernel:
        """All of it."""
        fold = self.of.fold
        block, part = self.names.var("block"), self.names.var("part")
        around = list(zip(fold.axes, self.shape, strict=True))[:-2]
        body: Stmt = self._image(block, after)
        if around:
            axis, size = around.pop()
            each = (size + (self.blocks - 1)) // self.blocks
            there = block * each + part
            body = substitute(body, {axis: there})
            if self.blocks > 1:
                body = Branch(sc.Lt(there, size), body, NOTHING)
            around.append((part, each))
        body = Seq((self._border(block), loops_around(around, body)))
        whole = For(block, sc.index(self.blocks), "parallel" if self.blocks > 1 else "serial", body)
        params = (*self.whole.inputs, self.room, self.whole.result)
        return Kernel(open_sizes(params, whole), params, len(self.whole.inputs), whole)

    def _border(self, block: sc.Scalar) -> Stmt:
        """What stands outside of an image, everywhere."""
        row, vector, lane = (self.names.var(each) for each in ("row", "vector", "lane"))
        place = (block, row, vector * self.lanes + lane)
        loops = [(row, self.rows), (vector, self.vectors), (lane, sc.index(self.lanes))]
        return loops_around(loops, Store(self.room, place, self.of.fill), "vectorized")

    def _image(self, block: sc.Scalar, after: StoredElement | None) -> Stmt:
        """The windows of an image, some rows of tiles after others."""
        band, count = self.names.var("band"), self.names.var("count")
        columns = self.names.var("columns")
        width, wide = self.of.data.buffer.shape[-1], self.vectors * self.lanes - self.left
        left = sc.Min(self.tiles - band * BAND, sc.index(BAND))
        both = Seq(
            (
                self._copied(block, band, count, columns),
                self._tiles(block, band, count, after),
            )
        )
        fits = sc.And(sc.Le(columns, width), sc.Le(columns, wide))  # they do
        bands = (self.tiles + (BAND - 1)) // BAND
        every = loops_around([(band, bands)], Bind(count, left, both))
        return Bind(columns, sc.Min(width, wide), Branch(fits, every, NOTHING))

    def _copied(
        self, block: sc.Scalar, band: sc.Scalar, count: sc.Scalar, columns: sc.Scalar
    ) -> Stmt:
        """The rows that some rows of tiles read: whole vectors, the last of which may overlap the
        one before; of rows that fill none some lanes.  Rows outside of the image are filled.

        A vector of all rows is copied before the next: their number is not as small as that of the
        vectors of a row.
        """
        data, high = self.of.data, self.of.data.buffer.shape[-2]
        above, below = self.names.var("above"), self.names.var("below")
        base = band * (BAND * self.step) + self.of.sides[0].start
        rows = count * self.step + self.more
        first = sc.Min(rows, sc.Max(sc.index(0), sc.index(0) - base))
        stop = sc.Max(above, sc.Min(rows, high - base))
        row, vector, lane = (self.names.var(each) for each in ("row", "vector", "lane"))
        lanes = (lane, sc.index(self.lanes))
        there = (*data.indices[:-2], base + above + row)

        def copied(column: sc.Scalar, some: sc.Scalar | None = None) -> Stmt:
            value = sc.Load(data.buffer, (*there, column + lane))
            one: Stmt = Store(self.room, (block, above + row, column + lane + self.left), value)
            one = one if some is None else Branch(some, one, NOTHING)
            return loops_around([(row, below - above), lanes], one, "vectorized")

        def filled(start: sc.Scalar, size: sc.Scalar) -> Stmt:
            place = (block, start + row, vector * self.lanes + lane)
            one = Store(self.room, place, self.of.fill)
            return loops_around([(row, size), (vector, self.vectors), lanes], one, "vectorized")

        every = loops_around([(vector, columns // self.lanes)], copied(vector * self.lanes))
        line = Branch(
            sc.Le(sc.index(self.lanes), columns),
            Seq((every, copied(columns - self.lanes))),
            copied(sc.index(0), sc.Lt(lane, columns)),
        )
        inside = sc.And(sc.Le(sc.index(0), base + above), sc.Le(base + below, high))
        line = Branch(inside, line, NOTHING)  # they are, if there are any
        whole = Seq((filled(sc.index(0), above), filled(below, rows - below), line))
        fits = sc.And(sc.Le(sc.index(0), above), sc.And(sc.Le(above, below), sc.Le(below, rows)))
        return Bind(above, first, Bind(below, stop, Branch(fits, whole, NOTHING)))  # they do

    def _tiles(
        self, block: sc.Scalar, band: sc.Scalar, count: sc.Scalar, after: StoredElement | None
    ) -> Stmt:
        """The windows of some rows of tiles."""
        of, (down, along) = self.of, self.of.sides
        tile, strip, near, lane = (self.names.var(e) for e in ("tile", "strip", "near", "lane"))
        first = (band * BAND + tile) * self.high
        here = {down.axis: first + near, along.axis: strip * self.lanes + lane}
        near_by: dict[Term, sc.Scalar] = {of.inside: self._read(block)}
        value = substitute(
            replaced(of.reduction, near_by), {**here, down.axis: tile * self.high + near}
        )
        high, wide = self.shape[-2:]
        ends = (sc.Le(first + self.high, high), sc.Lt(here[along.axis], wide))
        some = sc.Lt(here[down.axis], high)
        walk = LoopOrder(
            ((near, sc.index(self.high)), (lane, sc.index(self.lanes))),
            tuple([here.get(axis, axis) for axis in of.fold.axes]),
            value,
            2,
            tuple(here.items()),
            "vectorized",
            None,
            (near, *of.reduction.axes),
        )
        one = in_registers(walk, self.whole.result, after, self.names, (*ends, some))
        return loops_around([(tile, count), (strip, self.strips)], one)

    def _read(self, block: sc.Scalar) -> sc.Load:
        """The data where it has room."""
        row, column = self.of.data.indices[-2:]
        there = (row - self.of.sides[0].start, column + self.left)
        return sc.Load(self.room, (block, *[dim(place) for place in there]))
