"""Padded windows: windows over one channel, of images of any size, where vectors are short.

Depthwise convolutions and pools with a border.  No vector is read in part, so an image of one
channel is copied to where its border has room, and no window asks where the image ends:

    pad[r, q] = fill                            once: images are copied over all but their border
    for n, c:
        pad[r - start, q - start] = x[n, c, r, q]
        for tiles of eight rows, then for each row that is left:
            strips of a vector of windows, the last of which ends with the row

The last strip makes some elements again that the one before it made, unless it is known that strips
fill the row.  A row that is no vector long is made as one, of which a part is stored.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from plica.codegen.lower.image_window import BLOCKS, ImageWindow
from plica.codegen.lower.loop_order import StoredElement, loops_around
from plica.codegen.lower.nest import elements
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.statement import NOTHING, Bind, Branch, Kernel, Seq, Stmt, Store
from plica.ir.type import dim, known
from plica.schedule.default.machine import Machine

WRITTEN: Final = 100  # terms in the text of a tile, about
HIGHEST: Final = 8  # rows of a tile, at most
SOON: Final = 4  # the same where code is wanted soon: each row has lines of its own


class PaddedWriter:
    """Writes the loops of windows over images that are copied to where there is room."""

    def __init__(self, of: ImageWindow, machine: Machine) -> None:
        self.of, self.names, self.machine = of, of.names, machine
        self.lanes = machine.lanes(of.data.buffer.dtype)
        self.high = min(SOON if machine.soon else HIGHEST, max(2, WRITTEN // of.taps))
        self.blocks = BLOCKS if machine.cores > 1 else 1
        self.block = of.names.var("block")
        tall = (of.rows.made - 1) * of.rows.step + (of.rows.reach + 1)
        wide = (of.columns.made + (self.lanes - 2)) * of.columns.step + (of.columns.reach + 1)
        shape = (sc.index(self.blocks), dim(tall), dim(wide))
        self.pad = sc.Buffer(of.names.name("pad"), shape, of.data.buffer.dtype)

    def kernel(self) -> Kernel:
        """All of it."""
        image = Seq((self._copied(), self._image()))
        return self.of.kernel(image, self.block, self.blocks, (self._filled(),), self.pad)

    def _filled(self) -> Stmt:
        """The room, filled with what stands for all that is outside."""
        row, column = self.names.var("row"), self.names.var("column")
        plane = sc.Buffer(self.pad.name, self.pad.shape[1:], self.pad.dtype)
        stage = Each(plane, (row, column), self.of.fill)
        places = (self.block, row, column)
        kept = StoredElement(plane, places, sc.Load(plane, (row, column)))
        return elements(stage, self.pad, kept, self.machine)

    def _copied(self) -> Stmt:
        """An image of one channel in its room."""
        down, along, data = self.of.rows, self.of.columns, self.of.data
        row, strip, lane = (self.names.var(each) for each in ("row", "strip", "lane"))
        height, width = self.names.var("height"), self.names.var("width")
        rows = (data.buffer.shape[-2], dim(self.pad.shape[1] + down.start))
        columns = (data.buffer.shape[-1], dim(self.pad.shape[2] + along.start))
        whole = width // self.lanes

        def moved(column: sc.Scalar) -> Stmt:
            there = (self.block, row - down.start, column - along.start)
            return Store(self.pad, there, sc.Load(data.buffer, (*data.indices[:-2], row, column)))

        least = [dim(sc.Min(*both)) for both in (rows, columns)]
        if all(known(scalar) is not None for scalar in least):  # nothing is to be asked
            return loops_around(
                list(zip((row, lane), least, strict=True)), moved(lane), "vectorized"
            )
        vectors = ((strip, whole), (lane, sc.index(self.lanes)))
        several = loops_around(vectors, moved(strip * self.lanes + lane), "vectorized")
        last = self.names.var("last")
        one = Branch(sc.Lt(last, width), moved(last), NOTHING)  # it is
        rest = width - whole * self.lanes
        single = loops_around([(strip, rest)], Bind(last, whole * self.lanes + strip, one))
        copied = loops_around([(row, height)], Seq((several, single)))
        bounds = ((height, rows), (width, columns))
        asked: list[sc.Scalar] = [sc.Le(n, scalar) for n, both in bounds for scalar in both]
        fits = Branch(reduce(sc.And, asked), copied, NOTHING)  # it does
        return Bind(height, sc.Min(*rows), Bind(width, sc.Min(*columns), fits))

    def _image(self) -> Stmt:
        """The windows of an image: tiles of rows, then the rows that are left one by one."""
        tile, rest = self.names.var("tile"), self.names.var("rest")
        size, wide = self.of.rows.made, self.of.columns.made
        tiles = size // self.high
        several = loops_around([(tile, tiles)], self._line(tile * self.high, self.high))
        left = size - tiles * self.high
        single = loops_around([(rest, left)], self._line(tiles * self.high + rest, 1))
        row = self.names.var("row")
        narrow = loops_around([(row, size)], self._tile(row, 1, sc.index(0), narrow=True))
        some = Branch(sc.Le(sc.index(1), wide), narrow, NOTHING)
        return Branch(sc.Le(sc.index(self.lanes), wide), Seq((several, single)), some)

    def _line(self, row: sc.Scalar, many: int) -> Stmt:
        """All windows of some rows."""
        strip, column = self.names.var("strip"), self.names.var("column")
        wide = self.of.columns.made
        if (count := known(wide)) is not None and not count % self.lanes:
            statement = self._tile(row, many, strip * self.lanes)
            return loops_around([(strip, sc.index(count // self.lanes))], statement)
        place = sc.Min(strip * self.lanes, wide - self.lanes)
        inside = sc.And(sc.Le(sc.index(0), column), sc.Le(column + self.lanes, wide))  # it is
        tile = Branch(inside, self._tile(row, many, column), NOTHING)
        strips = (wide + (self.lanes - 1)) // self.lanes
        return loops_around([(strip, strips)], Bind(column, place, tile))

    def _tile(self, row: sc.Scalar, many: int, column: sc.Scalar, *, narrow: bool = False) -> Stmt:
        """The windows of a given number of rows and a vector of columns."""
        of = self.of
        at_row, at_column = of.data.indices[-2:]
        there = (self.block, dim(at_row - of.rows.start), dim(at_column - of.columns.start))
        read = sc.Load(self.pad, there)
        return of.tile(row, many, column, self.lanes, lambda near, lane: read, narrow=narrow)
