"""Window boxes: tiles of a convolution's rows that are boxes of pixels, as the copy engine fetches.

    row of a tile          -->   pixel
    (tile, inner)                n, y, x  =  box of the tile, then a place in it

Rows of an implicit product are pixels of all images. Consecutive pixels are no box if tiles do not
divide the image width; so a tile is a box of images, lines and columns, and overhanging pixels are
not stored. The window of each term is that box shifted, possibly beginning before the image: out of
bounds the engine writes zeros, so that a border needs no test. Terms go in slices of contiguous
channels of one window element, the last of which may exceed the channels.

>>> box_for((15, 89, 89), 128)
WindowBox(sizes=(15, 89, 89), counts=(1, 4, 32))
>>> box_for((64, 7, 7), 128).counts
(16, 1, 8)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from attrs import evolve, frozen

from plica.core import Term, free_vars
from plica.ir.loop import scalar as sc
from plica.ir.type import known, polynomial
from plica.schedule.default.gpu.operand import Operands


@frozen
class WindowBox:
    """How long the axes of rows are, and how many neighbours along each are in one tile."""

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def along(self) -> tuple[int, ...]:
        """Boxes along each axis."""
        return tuple([-(-n // count) for n, count in zip(self.sizes, self.counts, strict=True)])

    @property
    def tiles(self) -> int:
        return prod(self.along)

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return prod(self.counts)

    def pixel(self, tile: sc.Scalar, inner: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """Where a row is along each axis, by its tile and its number in that."""
        scalars: list[sc.Scalar] = []
        for count, many in reversed([*zip(self.counts, self.along, strict=True)]):
            first = len(scalars) == len(self.sizes) - 1
            box, place = (tile, inner) if first else (tile % many, inner % count)
            scalars.append(box * count + place)
            tile, inner = tile // many, inner // count
        return tuple(reversed(scalars))

    def number(self, pixel: Sequence[sc.Scalar]) -> tuple[sc.Scalar, sc.Scalar]:
        """The tile of a pixel, and the number of its row in that."""
        tile, inner = sc.index(0), sc.index(0)
        for place, count, many in zip(pixel, self.counts, self.along, strict=True):
            tile = tile * many + place // count
            inner = inner * count + place % count
        return tile, inner


def box_for(sizes: tuple[int, ...], rows: int) -> WindowBox:
    """The box with this many rows and the least overhang; of equal ones the one with the longest
    lines."""
    steps = [1 << n for n in range(rows.bit_length())]
    every = [
        WindowBox(sizes, (rows // prod(rest), *rest))
        for rest in product(steps, repeat=len(sizes) - 1)
        if prod(rest) <= rows
    ]
    return min(every, key=lambda box: (box.tiles, tuple([-n for n in reversed(box.counts)])))


def is_boxed(of: Operands) -> bool:
    """Whether rows are pixels of windows: each axis of them moves one axis of the left side by one,
    and channels, which are neighbours, are the last of the terms."""
    *places, last = of.left.indices
    rows, terms = of.groups["rows"], of.groups["terms"]
    if of.size("batch") > 1 or len(terms) < 2 or last is not terms[-1] or of.dtype.bytes != 2:
        return False
    if not of.is_plain() or of.groups["columns"] != of.axes[-1:]:
        return False
    moved: list[Term] = []
    for place in places:
        mine = [axis for axis in rows if axis in free_vars(place)]
        steps = dict(polynomial(place).values())
        if len(mine) > 1 or any(steps.get((axis,)) != 1 for axis in mine):
            return False
        moved += mine
    whole = known(of.left.buffer.shape[-1]) == of.sizes[last] and of.sizes[last] % of.octet == 0
    return whole and sorted(map(id, moved)) == sorted(map(id, rows)) and of.bordered in (
        None, of.left,
    )  # fmt: skip


def can_be_box(of: Operands, rows: int) -> bool:
    """Whether a given number of rows of a window, one after another, may be a box of the left side:
    they are of one of its rows, whole rows, or go on where a row ends."""
    axes = of.groups["rows"]
    if len(axes) < 2:
        return True
    wide = of.sizes[axes[-1]]
    if rows % wide == 0 or wide % rows == 0:
        return True
    shape = zip(of.left.indices, of.left.buffer.shape, strict=True)
    return any(place is axes[-1] and known(size) == wide for place, size in shape)


def in_channel_slices(of: Operands, box: WindowBox, terms: int) -> Operands:
    """A product of windows whose terms are whole slices of channels, and whose tiles are boxes:
    sides are 0 beyond the channels, and the left one outside of the images."""
    channel = of.groups["terms"][-1]
    count = of.sizes[channel]
    padded = -(-count // terms) * terms
    ends = (sc.Lt(channel, sc.index(count)),) if padded > count else ()
    border: list[sc.Scalar] = []
    uneven = {
        axis
        for axis, size, step in zip(of.groups["rows"], box.sizes, box.counts, strict=True)
        if size % step
    }
    for place, size in zip(of.left.indices[:-1], of.left.buffer.shape, strict=False):
        if of.bordered is not None and place not in of.sizes:
            border.append(sc.Le(sc.index(0), place))
        if of.bordered is not None or not uneven.isdisjoint(free_vars(place)):
            border.append(sc.Lt(place, size))
    return evolve(
        of, sizes={**of.sizes, channel: padded}, ends=ends, border=tuple(border),
        bordered=of.left if border else None,
    )  # fmt: skip
