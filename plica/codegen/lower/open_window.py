"""Open windows: windows over one channel, of images of any size.

Depthwise convolutions and pools with a border.  A tile is a vector of a row, and a few rows high:
what is read serves all windows it is in.  Its sums are all written out.

    for n, c: the first tile of four rows, some of whose windows begin before the image;
              all others whose windows are inside; the last, which ends with the image
        in each: the first strip of 16 columns, all others inside, the last, in the same way

Nothing is copied.  Which windows of the first and the last are outside is known where they are
written, but for one that a step rounds away.  The last make some elements again that those before
them made.  An image that is too low has its rows, one that is too narrow its strips one by one,
asking of each element whether it is inside.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from math import prod
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.codegen.lower.loop_order import NEAR, LoopOrder, loops_around, replaced
from plica.codegen.lower.nest import StoredElement, in_order, in_registers, open_sizes, stored
from plica.codegen.lower.open_tile import without_units
from plica.core.binding import free_vars, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, pairs
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, Kernel, Seq, Stmt
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

BLOCKS: Final = 16
"""Into so many parts the channels are cut, where cores share them."""


_Ask: TypeAlias = Literal["none", "before", "behind", "each"]
"""What is asked of places of a tile along a side: nothing, whether they are before or behind the
image, or both, for one row or strip that may be anywhere."""


@frozen(eq=False)
class _Side:
    """One of the last two axes of the data: `start + step * axis + some terms`, which reach so far
    beyond."""

    axis: sc.ScalarVar
    start: int
    step: int
    reach: int
    least: int
    most: int
    """How much more than the image `step` times the number of windows is."""

    @property
    def beyond(self) -> int:
        """How far some windows reach, less `step` times their number."""
        return self.start + self.reach + 1 - self.step


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
    sizes_ = zip(fold.out.shape[-2:], data.buffer.shape[-2:], strict=True)
    sides = [
        _side(place, axis, terms, *both)
        for place, axis, both in zip(data.indices[-2:], (column, row), sizes_, strict=True)
    ]
    (choice,) = [each for each in (body.body, *body.body._children) if isinstance(each, sc.Select)]
    if sides[0] is None or sides[1] is None or sides[1].step > NEAR:
        return None
    return _Window(fold, body, choice, data, fill, (sides[0], sides[1]))


def _side(
    place: sc.Scalar,
    axis: sc.ScalarVar,
    terms: dict[sc.ScalarVar, int],
    size: sc.Scalar,
    read: sc.Scalar,
) -> _Side | None:
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
    if step <= 0 or start > 0 or (more := _excess(size, read, step)) is None:
        return None
    return _Side(axis, start, step, reach, *more)


def _excess(size: sc.Scalar, read: sc.Scalar, step: int) -> tuple[int, int] | None:
    """The least and the most that `step * size - read` may be; None where nobody knows.

    >>> from plica.ir.type.dim import dim_var
    >>> n = dim_var("n")
    >>> _excess((n + 1) // 2, n, 2), _excess(n - 2, n, 1), _excess(n, dim_var("k"), 1)
    ((0, 1), (-2, -2), None)
    """
    apart = dim(size * step - read)
    if (number := known(apart)) is not None:
        return number, number
    for atoms, factor in polynomial(apart).values():
        match atoms:
            case (sc.FloorDiv(whole, sc.Lit(int(by), _)) as atom,) if factor == by > 0:
                rest = known(dim(apart + (whole - atom * by)))
                return None if rest is None else (rest - by + 1, rest)
            case (sc.Min(left, right) | sc.Max(left, right) as atom,) if factor > 0:
                sides = (
                    [
                        _excess(dim(size + (one - atom) * (factor // step)), read, step)
                        for one in (left, right)
                    ]
                    if factor % step == 0
                    else []
                )
                if sides and None not in sides:
                    join = min if isinstance(atom, sc.Min) else max
                    lows, highs = zip(*[each for each in sides if each is not None], strict=True)
                    return join(lows), join(highs)
    return None


class _Writer:
    """Writes the loops: how large a tile is, and what of it is inside of the image."""

    def __init__(self, whole: Stages, of: _Window, names: Names, machine: Machine) -> None:
        self.whole, self.of, self.names = whole, of, names
        self.lanes = machine.lanes(of.data.buffer.dtype)
        taps = prod([known(each) or 0 for each in of.reduction.extents])
        self.high = min(HIGHEST, max(2, WRITTEN // taps))
        self.blocks = BLOCKS if machine.cores > 1 else 1
        self.shape = of.fold.out.shape
        self.slack: list[sc.Scalar] = [sc.index(0)] * 2
        """What is left of the image behind `step` times the number of windows, by side."""

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
        """The windows of an image in tiles of rows; one by one where it is too low for those."""
        row = self.names.var("row")

        def tile(there: sc.Scalar, asked: _Ask) -> Stmt:
            return self._line(there, asked, after)

        lines = loops_around([(row, self.shape[-2])], self._narrow(row, "each", after))
        return self._along(0, self.high, tile, lines)

    def _line(self, row: sc.Scalar, asked: _Ask, after: StoredElement | None) -> Stmt:
        """All windows of some rows, in strips of columns."""

        def strip(there: sc.Scalar, beside: _Ask) -> Stmt:
            return self._tile(row, asked, there, beside, after)

        return self._along(1, self.lanes, strip, self._narrow(row, asked, after))

    def _narrow(self, row: sc.Scalar, asked: _Ask, after: StoredElement | None) -> Stmt:
        """All windows of some rows of an image that may be narrow."""
        strip = self.names.var("strip")
        strips = (self.shape[-1] + (self.lanes - 1)) // self.lanes
        one = self._tile(row, asked, strip * self.lanes, "each", after)
        return loops_around([(strip, strips)], one)

    def _along(
        self, at: int, wide: int, made: Callable[[sc.Scalar, _Ask], Stmt], small: Stmt
    ) -> Stmt:
        """What is made along one side in pieces so wide: those whose windows may begin before the
        image, those inside, those that end with the image; or, in a small image, the other.

        Windows before it are at places that are numbers, those behind it at places that are
        numbers from its end: whether they are outside is known but where a step rounds.
        """
        side, size, read = self.of.sides[at], self.shape[at - 2], self.of.data.buffer.shape[at - 2]
        full, piece, slack = (self.names.var(each) for each in ("full", "piece", "slack"))
        exact = side.least == side.most
        self.slack[at] = sc.index(-side.most) if exact else slack
        first = -(side.start // (wide * side.step))
        behind = max(0, -(-(side.most + side.beyond) // side.step))  # windows not inside, at most
        last = -(-(wide - 1 + behind) // wide)
        middle = made((piece + first) * wide, "none")
        line = [
            *[made(sc.index(each * wide), "before") for each in range(first)],
            loops_around([(piece, full - first)], middle),
        ]
        for number in range(last, 0, -1):
            end = made(size - number * wide, "behind")
            if number > 1:  # it may have been made
                end = Branch(sc.Lt(full * wide, size - (number - 1) * wide), end, NOTHING)
            line.append(end)
        fits: list[sc.Scalar] = [
            sc.Le(sc.index(first), full),
            sc.Le(full * wide, size),
            sc.Le(full * (wide * side.step) + side.beyond, read),
            sc.Le(sc.index(-side.start), (size - last * wide) * side.step),
            sc.Le(self.slack[at], read - size * side.step),  # it is
        ]
        most = sc.Min(size // wide, (read - side.beyond) // (wide * side.step))
        whole = Bind(full, most, Branch(reduce(sc.And, fits), Seq(tuple(line)), small))
        if exact:
            return whole
        # Between these numbers it is anyway: whoever reads the comparisons knows most outcomes.
        above = sc.Min(read - size * side.step, sc.index(-side.least))
        return Bind(slack, sc.Max(above, sc.index(-side.most)), whole)

    def _tile(
        self,
        row: sc.Scalar,
        rows: _Ask,
        column: sc.Scalar,
        columns: _Ask,
        after: StoredElement | None,
    ) -> Stmt:
        """The windows of a few rows, of which some read places that are outside, or are none."""
        of, (down, along) = self.of, self.of.sides
        near, lane = self.names.var("near"), self.names.var("lane")
        high = 1 if rows == "each" else self.high
        here: dict[sc.ScalarVar, sc.Scalar] = {down.axis: row + near, along.axis: column + lane}
        read: sc.Scalar = of.data
        if tests := [*self._tests(0, rows, here), *self._tests(1, columns, here)]:
            read = sc.Select(reduce(sc.And, tests), of.data, of.fill)
        value = substitute(replaced(of.reduction, {of.inside: read}), {**here})
        walk = LoopOrder(
            ((near, sc.index(high)), (lane, sc.index(self.lanes))),
            tuple([here.get(axis, axis) for axis in of.fold.axes]),
            value,
            2,
            tuple(here.items()),
            "vectorized",
            sc.Lt(here[along.axis], self.shape[-1]) if columns == "each" else None,
            (near, *of.reduction.axes),
        )
        return in_registers(walk, self.whole.result, after, self.names)

    def _tests(
        self, at: int, asked: _Ask, here: dict[sc.ScalarVar, sc.Scalar]
    ) -> Iterator[sc.Scalar]:
        """What is asked of one side of the place that is read."""
        side, read = self.of.sides[at], self.of.data.buffer.shape[at - 2]
        place = self.of.data.indices[at - 2]
        if asked in ("each", "before") and side.start < 0:
            yield sc.Le(sc.index(0), place)
        if asked == "each":
            yield sc.Lt(place, read)
        elif asked == "behind":
            there = substitute(place, {side.axis: here[side.axis]})
            yield sc.Lt(dim(there - self.shape[at - 2] * side.step), self.slack[at])
