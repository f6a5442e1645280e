"""Open windows: windows over one channel, of images of any size.

Depthwise convolutions and pools with a border.  A tile is a vector of a row, and a few rows high:
what is read serves all windows it is in.  Its sums are all written out.

    for n, c, tiles of four rows after the first row, all of whose windows are inside:
        the first strip of 16 columns, asking whether a column is before the image
        all others that read what is inside alone
        the last, which ends with the image: asking whether a column is behind it
    for each other row: all strips, asking whether an element is inside

Nothing is copied: vectors are read in part (where they cannot be, images are, `padded_window`).
The last strip makes some elements again that the one before it made.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Final

from plica.codegen.lower.image_window import BLOCKS, WRITTEN, ImageWindow, image_window
from plica.codegen.lower.loop_order import LoopOrder, loops_around, replaced
from plica.codegen.lower.nest import StoredElement, in_order, in_registers, open_sizes, stored
from plica.codegen.lower.open_tile import without_units
from plica.codegen.lower.padded_window import PaddedWriter
from plica.core.binding import substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, pairs
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Seq, Stmt
from plica.ir.type.dim import known
from plica.schedule.default.machine import Machine

HIGHEST: Final = 4
"""Rows of a tile, at most."""


def open_windows(of: Stages, machine: Machine) -> Kernel | None:
    """The loops of stages that are windows of images of open size, None where they are not."""
    of = without_units(of)
    every = pairs(of) if all(isinstance(e, Each) for e in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    if (found := image_window(in_order(fold))) is None:
        return None
    after = stored(fold, epilogue)
    places, value = (fold.axes, None) if after is None else (after.indices, after.value)
    if tuple(places[-1:]) != fold.axes[-1:]:
        return None
    names = Names(of, *([] if value is None else [value]))
    written = _Writer if machine.masks else PaddedWriter
    return written(of, found, names, machine).kernel(after)


class _Writer:
    """Writes the loops: how large a tile is, and what of it is inside of the image."""

    def __init__(self, whole: Stages, of: ImageWindow, names: Names, machine: Machine) -> None:
        self.whole, self.of, self.names = whole, of, names
        self.lanes = machine.lanes(of.data.buffer.dtype)
        taps = prod([known(each) or 0 for each in of.reduction.extents])
        self.high = min(HIGHEST, max(2, WRITTEN // taps))
        self.blocks = BLOCKS if machine.cores > 1 else 1
        self.shape = of.fold.out.shape

    def kernel(self, after: StoredElement | None) -> Kernel:
        """All of it."""
        fold = self.of.fold
        block, part = self.names.var("block"), self.names.var("part")
        around = list(zip(fold.axes, self.shape, strict=True))[:-2]
        body = self._image(after)
        if self.blocks > 1 and around:
            axis, size = around.pop()
            each = (size + (self.blocks - 1)) // self.blocks
            there = block * each + part
            body = Branch(sc.Lt(there, size), substitute(body, {axis: there}), NOTHING)
            around.append((part, each))
        body = loops_around(around, body)
        if self.blocks > 1:
            body = For(block, sc.index(self.blocks), "parallel", body)
        params = (*self.whole.inputs, self.whole.result)
        return Kernel(open_sizes(params, body), params, len(self.whole.inputs), body)

    def _image(self, after: StoredElement | None) -> Stmt:
        """The windows of an image: rows near its ends one by one, all others in tiles."""
        side, size, read = self.of.sides[0], self.shape[-2], self.of.data.buffer.shape[-2]
        stop, row, tile, number = (self.names.var(e) for e in ("stop", "row", "tile", "number"))
        top = -(side.start // side.step)
        # Rows of which a window is not inside, and those that fill no tile.
        there = sc.Select(sc.Lt(number, sc.index(top)), number, number + stop * self.high)
        within = sc.And(sc.Le(sc.index(0), row), sc.Lt(row, size))  # it is
        one = Bind(row, there, Branch(within, self._line(row, 1, True, after), NOTHING))
        ends = loops_around([(number, size - stop * self.high)], one)
        tiles = self._line(tile * self.high + top, self.high, False, after)
        fits = sc.Le((stop * self.high + top) * side.step + side.beyond, read)
        level = sc.And(fits, sc.Le(stop * self.high + top, size))
        inner = Branch(level, loops_around([(tile, stop)], tiles), NOTHING)
        whole = sc.Min(size, (read - side.beyond) // side.step)
        most = sc.Max(sc.index(0), (whole - top) // self.high)
        return Bind(stop, most, Seq((ends, inner)))

    def _full(self) -> sc.Scalar:
        """How many strips of a row begin and end with windows that are not behind the image."""
        side, size, read = self.of.sides[1], self.shape[-1], self.of.data.buffer.shape[-1]
        return sc.Min(size // self.lanes, (read - side.beyond) // (self.lanes * side.step))

    def _fits(self, full: sc.Scalar) -> sc.Scalar:
        """Whether a row has strips that are inside, between those at its ends."""
        side, size, read = self.of.sides[1], self.shape[-1], self.of.data.buffer.shape[-1]
        asked: list[sc.Scalar] = [
            sc.Le(sc.index(self._left), full),
            sc.Le(full * self.lanes, size),
            sc.Le(full * (self.lanes * side.step) + side.beyond, read),
            sc.Le(sc.index(-side.start), (size - self.lanes) * side.step),
        ]
        return reduce(sc.And, asked)

    @property
    def _left(self) -> int:
        """How many strips may have windows before the image."""
        side = self.of.sides[1]
        return -(side.start // (self.lanes * side.step))

    def _line(self, row: sc.Scalar, many: int, ends: bool, after: StoredElement | None) -> Stmt:
        """All windows of some rows, which may be outside.

        In a narrow image all columns may be outside; else some of the first, none of those that
        follow, and some of the last, which ends with the image.
        """
        side, size = self.of.sides[1], self.shape[-1]
        full, column, strip = (self.names.var(each) for each in ("full", "column", "strip"))
        left = self._left
        strips = (size + (self.lanes - 1)) // self.lanes

        def made(place: sc.Scalar, before: bool, behind: bool) -> Stmt:
            return self._tile(row, many, place, after, ends, before, behind)

        narrow = loops_around([(strip, strips)], made(strip * self.lanes, True, True))
        if ends:  # there are few
            return narrow
        begun = sc.Le(sc.index(-side.start), column * side.step)
        inside = sc.And(begun, sc.Le(column + self.lanes, size))
        place = sc.Min((full + strip) * self.lanes, size - self.lanes)
        last = Bind(column, place, Branch(inside, made(column, False, True), NOTHING))  # it is
        line = [
            *[made(sc.index(each * self.lanes), True, False) for each in range(left)],
            loops_around([(strip, full - left)], made((strip + left) * self.lanes, False, False)),
            loops_around([(strip, strips - full)], last),
        ]
        return Bind(full, self._full(), Branch(self._fits(full), Seq(tuple(line)), narrow))

    def _tile(  # noqa: PLR0917  # where a tile is, and which of its sides may be outside
        self,
        row: sc.Scalar,
        many: int,
        column: sc.Scalar,
        after: StoredElement | None,
        rows_end: bool,
        before: bool,
        behind: bool,
    ) -> Stmt:
        """The windows of so many rows, of which some read places that are outside, or are none."""
        of, (down, along) = self.of, self.of.sides
        near, lane = self.names.var("near"), self.names.var("lane")
        here: dict[sc.ScalarVar, sc.Scalar] = {down.axis: row + near, along.axis: column + lane}
        (at_row, at_column), (rows, columns) = of.data.indices[-2:], of.data.buffer.shape[-2:]
        asked: tuple[tuple[sc.Scalar, bool], ...] = (
            (sc.Le(sc.index(0), at_row), rows_end and down.start < 0),
            (sc.Lt(at_row, rows), rows_end),
            (sc.Le(sc.index(0), at_column), before and along.start < 0),
            (sc.Lt(at_column, columns), behind),
        )
        read: sc.Scalar = of.data
        if tests := [test for test, needed in asked if needed]:
            read = sc.Select(reduce(sc.And, tests), of.data, of.fill)
        value = substitute(replaced(of.reduction, {of.inside: read}), {**here})
        walk = LoopOrder(
            ((near, sc.index(many)), (lane, sc.index(self.lanes))),
            tuple([here.get(axis, axis) for axis in of.fold.axes]),
            value,
            2,
            tuple(here.items()),
            "vectorized",
            sc.Lt(here[along.axis], self.shape[-1]) if before and behind else None,
            (near, *of.reduction.axes),
        )
        return in_registers(walk, self.whole.result, after, self.names)
