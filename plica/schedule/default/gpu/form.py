"""Tiles of products as stages: both sides gathered and padded to whole tiles, then multiplied.

    pad[…]              a side with rows of whole octets, where it has others
    turned[…]           a side whose rows are neighbours, where its terms are
    left[z, …]          one side in tiles: 0 outside of an image and beyond the rows and terms
    right[z, …]         the other
    part[z, m…, n…]     sum over k… of left * right, for a part of the terms
    sum[…]              sum of the parts, where there are several
    out[…]              the epilogue

Rows, columns and terms are digits, as a `DigitLayout` has them: a tile, a warp, a square of a thread, a
place in it.  Zero is what a sum begins with, so sizes that tiles do not divide are padded with it.
A side that is constant is gathered before the program runs, by hoisting: it then lies in memory as
its tiles are read.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.gpu.operand import operands
>>> x, w = buffer("x", (3, 5), f32), buffer("w", (5, 4), f32)
>>> dense = stage("y", (3, 4), lambda m, n: reduce("sum", (5,), lambda k: x[m, k] * w[k, n]))
>>> halves = DigitLayout((("by", 0), ("i", 2)), (("bx", 0), ("j", 2)), (("k", 0), ("e", 2)),
...                 ("by", "k", "e", "i"), ("bx", "k", "e", "j"))
>>> print(tiled(operands(stages((x, w), (dense,))), halves))
left[by < 2, k_1 < 3, e < 2, i_2 < 2] = x[by * 2 + i_2, k_1 * 2 + e] if by * 2 + i_2 < 3 and k_1 * 2 + e < 5 else 0.0
right[bx < 2, k_1 < 3, e < 2, j < 2] = w[k_1 * 2 + e, bx * 2 + j] if k_1 * 2 + e < 5 else 0.0
part[by < 2, i_2 < 2, bx < 2, j < 2] = sum(left[by, k_1, e, i_2] * right[bx, k_1, e, j] for k_1 in range(3) for e in range(2))
out[m < 3, n < 4] = part[m // 2, m % 2, n // 2, n % 2]
"""  # noqa: E501  # stages are printed a line each

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import Term, map_bottom_up
from plica.ir.loop import Each, Names, Stages, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import DType, i32, known
from plica.schedule.default.gpu.operand import GROUPS, Group, Operands, Where
from plica.schedule.default.gpu.window_box import WindowBox

Digits: TypeAlias = tuple[tuple[str, int], ...]
"""The names of a number's digits, with the extents of all but the first."""


Sides: TypeAlias = tuple[bool, bool]  # which sides something is about: the left one, the right one

NEITHER: Final[Sides] = (False, False)


@frozen
class DigitLayout:
    """How rows, columns and terms are cut into digits, and in which order a side's lie."""

    rows: Digits
    columns: Digits
    terms: Digits
    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and terms of a tile."""
        rows, columns, terms = (prod(n for _, n in each[1:])
                                for each in (self.rows, self.columns, self.terms))  # fmt: skip
        return rows, columns, terms


def tiled(  # noqa: PLR0917  # what a form is made of
    of: Operands,
    layout: DigitLayout,
    parts: int = 1,
    pads: Sides = NEITHER,
    turns: Sides = NEITHER,
    box: WindowBox | None = None,
) -> Stages:
    """A product in tiles, its terms in a given number of parts.

    Operands in `pads` are first copied to rows of whole octets; those in `turns` are transposed
    first, so that rows (or columns) are contiguous instead of terms. Rows of a tile are those of a
    `box`, if given.
    """
    names = Names(*of.inputs, *of.axes, of.reduced, of.value, of.left, of.right)
    slices = -(-of.depth // (parts * layout.tile[2]))
    lots = of.size("batch") * parts
    z = names.var("z") if lots > 1 else None
    batch = sc.index(0) if z is None else z // parts if parts > 1 else z
    part_of = (z % parts, parts) if z is not None and parts > 1 else None
    cuts: dict[Group, _Number] = {
        "rows": _number(layout.rows, box.tiles * box.rows if box else of.size("rows"), names),
        "columns": _number(layout.columns, of.size("columns"), names),
        "terms": _number(layout.terms, of.depth, names, (slices, part_of)),
    }
    extent = {axis: n for cut in cuts.values() for axis, n in cut.axes.items()}
    word = {axis.name.hint: axis for axis in extent}
    numbers: dict[Group, sc.Scalar] = {"batch": batch}
    numbers |= {group: number.value for group, number in cuts.items()}
    told: dict[Term, sc.Scalar] = {}
    if box is not None:
        (tile, *places), (_, *lengths) = cuts["rows"].places, cuts["rows"].lengths
        pixel = box.pixel(tile, _joined(places, lengths))
        told |= zip(of.groups["rows"], pixel, strict=True)
        numbers = {group: scalar for group, scalar in numbers.items() if group != "rows"}
    where = Where(numbers, told)

    def buffer(like: str, axes: Sequence[sc.ScalarVar], dtype: DType) -> sc.Buffer:
        sizes = [sc.index(lots if axis is z else extent[axis]) for axis in axes]
        return sc.Buffer(names.name(like), tuple(sizes), dtype)

    made: list[Each] = []
    copies: list[Each] = []
    total = of.reduced.dtype
    for load, order, group, like, pad, turn in (
        (of.left, layout.left, "rows", "left", pads[0], turns[0]),
        (of.right, layout.right, "columns", "right", pads[1], turns[1]),
    ):
        lot = () if z is None or not (parts > 1 or of.depends(load, "batch")) else (z,)
        axes = (*lot, *[word[each] for each in order])
        bounds = {name: cuts[name].size for name in (group, "terms")}  # type: ignore[index]  # groups
        element: sc.Scalar = of.at(load, where)
        if pad:
            copies.append(_padded(of, load, names))
            element = sc.Load(copies[-1].out, element.indices)  # type: ignore[attr-defined]  # a load
            near = "terms" if of.along(load) else group
            bounds[near] = -(-bounds[near] // of.octet) * of.octet
        if turn:
            copies.append(_padded(of, load, names, turned=True))
            *first, row, term = element.indices  # type: ignore[attr-defined]  # a load
            element = sc.Load(copies[-1].out, (*first, term, row))
            bounds[group] = -(-bounds[group] // of.octet) * of.octet
        guards = [test for name, size in bounds.items() for test in cuts[name].inside(size)]  # type: ignore[index]  # by the names of cuts
        guards += of.inside(load, where)
        dtype = of.kind(load) if total is i32 else of.dtype
        element = _wide(element, dtype)
        if guards:
            element = sc.Select(reduce(sc.And, guards), element, sc.Lit(0, dtype))
        made.append(Each(buffer(like, axes, dtype), axes, element))
    rows, columns, terms = (tuple(cuts[each].axes) for each in ("rows", "columns", "terms"))
    both = (*(() if z is None else (z,)), *rows, *columns)
    left, right = (_wide(sc.Load(stage.out, stage.axes), total) for stage in made)
    counts = tuple([sc.index(extent[axis]) for axis in terms])
    part = buffer("part", both, total)
    made.append(Each(part, both, sc.Reduce("sum", terms, counts, sc.Mul(left, right))))
    inputs = tuple([of.views.get(each, each) for each in of.inputs])
    return stages(inputs, [*copies, *made, *_after(of, layout, part, parts, names, box)])


def can_transpose(of: Operands, side: sc.Load, group: Group) -> bool:
    """Whether the terms of a side are neighbours, and the rows (or columns) the axis before."""
    if side is of.bordered or side.buffer not in of.views or not of.along(side):
        return False
    names = Names(*of.inputs, *of.axes, of.reduced, of.value, of.left, of.right)
    numbers: dict[Group, sc.Scalar] = {literal: names.var(literal) for literal in GROUPS}
    wanted = (numbers[group], numbers["terms"])
    return of.at(side, Where(numbers, {})).indices[-2:] == wanted


def _padded(of: Operands, side: sc.Load, names: Names, *, turned: bool = False) -> Each:
    """A copy of a side with rows of whole octets, the rest of which is 0; the last two axes may
    change their places."""
    view = of.views[side.buffer]
    axes = tuple([names.var("a") for _ in view.shape])
    sizes, places = view.shape, axes
    if turned:
        sizes = (*sizes[:-2], sizes[-1], sizes[-2])
        places = (*axes[:-2], axes[-1], axes[-2])
    last = known(sizes[-1])
    assert last is not None
    whole = -(-last // of.octet) * of.octet
    element: sc.Scalar = sc.Load(view, places)
    if whole > last or not turned:
        element = sc.Select(sc.Lt(axes[-1], sizes[-1]), element, sc.Lit(0, view.dtype))
    name = names.name("turned" if turned else "pad")
    shape = (*sizes[:-1], sc.index(whole))
    return Each(sc.Buffer(name, shape, view.dtype), axes, element)


def _after(  # noqa: PLR0917  # what an epilogue is made of
    of: Operands,
    layout: DigitLayout,
    part: sc.Buffer,
    parts: int,
    names: Names,
    box: WindowBox | None,
) -> list[Each]:
    """The sum of the parts, and the epilogue."""
    axes, shape, where = of.result(names) if box is None else of.pixels()
    lots = (where.numbers["batch"],) if of.size("batch") > 1 else ()
    rows = digits(where.numbers["rows"], layout.rows)
    if box is not None:
        tile, inner = box.number(of.groups["rows"])
        rows = (tile, *digits(inner, layout.rows)[1:])
    places = (*rows, *digits(where.numbers["columns"], layout.columns))
    made: list[Each] = []
    if parts == 1:
        element: sc.Scalar = sc.Load(part, (*lots, *places))
    else:
        s = names.var("s")
        at = where.numbers["batch"] * parts + s if lots else s
        total = sc.Buffer(names.name("sum"), shape, part.dtype)
        terms = sc.Reduce("sum", (s,), (sc.index(parts),), sc.Load(part, (at, *places)))
        made.append(Each(total, axes, terms))
        element = sc.Load(total, axes)

    def filled(node: Term) -> Term:
        if not isinstance(node, sc.Load):
            return node
        return element if node.buffer is of.reduced else of.at(node, where)

    value = map_bottom_up(filled, of.value)
    if axes != of.axes:  # what an epilogue says of places, too
        value = of.put(value, where)
    out = sc.Buffer(names.name("out"), shape, sc.dtype_of(value))
    return [*made, Each(out, axes, value)]


def _wide(of: sc.Scalar, dtype: DType) -> sc.Scalar:
    return of if sc.dtype_of(of) is dtype else sc.Cast(of, dtype)


@frozen(eq=False)
class _Number:
    """A number as digits: axes with their lengths, all places and lengths, and its size."""

    axes: Mapping[sc.ScalarVar, int]
    places: tuple[sc.Scalar, ...]
    lengths: tuple[int, ...]
    most: int  # how many numbers the digits count
    size: int

    @property
    def value(self) -> sc.Scalar:
        """The number itself."""
        return _joined(self.places, self.lengths)

    def inside(self, size: int) -> list[sc.Scalar]:
        """The condition that the number is below a size, if necessary.

        Digits below one that divides the size say nothing about it.
        """
        if size >= self.most:
            return []
        bound, step = list(self.places), 1
        for length in reversed(self.lengths):
            if size % (step * length):
                break
            step *= length
            bound.pop()
        return [sc.Lt(_joined(bound, self.lengths), sc.index(size // step))]


def _number(
    of: Digits,
    size: int,
    names: Names,
    first: tuple[int, tuple[sc.Scalar, int] | None] | None = None,
) -> _Number:
    """The number of a row, a column or a term; `first` is the extent and part of its first
    digit."""
    steps = [count for _, count in of[1:]]
    many, part = (-(-size // prod(steps)), None) if first is None else first
    own = [names.var(word) for word, _ in of]
    axes = dict(zip(own, (many, *steps), strict=True))
    most = many * prod(steps)
    if part is None:
        return _Number(axes, tuple(own), tuple(steps), most, size)
    return _Number(axes, (part[0], *own), (many, *steps), most * part[1], size)


def _joined(places: Sequence[sc.Scalar], lengths: Sequence[int]) -> sc.Scalar:
    """The number whose first digits are given."""
    scalar = places[0]
    for place, length in zip(places[1:], lengths, strict=False):
        scalar = scalar * length + place
    return scalar


def digits(of: sc.Scalar, cut: Digits) -> tuple[sc.Scalar, ...]:
    """The digits of a number."""
    scalars: list[sc.Scalar] = []
    for _, count in reversed(cut[1:]):
        scalars.append(of % count)
        of = of // count
    return (of, *reversed(scalars))
