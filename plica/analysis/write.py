"""Writes: elements that stores reach over some loops, and which of them are one write.

Writes that differ in constants alone are one write with further loops:  `4*j`, `4*j + 1`, `4*j +
2`, `4*j + 3` are `4*j + v` for `v < 4`.  A write whose places are all numbers of a given number of
digits fills a box, whatever its loops:  `16*i + j` for `i < 4`, `j < 16` is `v` for `v < 64`, and
for `i < 2` is `min(16*i, 12) + j` for `v < 28`, where the last tile overlaps the one before.
Boxes that meet along one axis are one box.

>>> from plica.ir.type.dim import dim_var
>>> i, j = dim_var("i"), dim_var("j")
>>> tiles = Write((16 * i + j + 1,), ((i, sc.index(4)), (j, sc.index(16))))
>>> border = [Write((sc.index(at),), ()) for at in (0, 65)]
>>> (whole,) = filled([*border, tiles])
>>> [known(extent) for _, extent in whole.loops]
[66]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import TypeAlias

from attrs import evolve, frozen

from plica.analysis.index.context import conjuncts
from plica.analysis.index.polynomial import Key, Polynomial, polynomial, to_term
from plica.core import Name, free_vars
from plica.ir.loop import scalar as sc
from plica.ir.type import i64, known

Places: TypeAlias = "tuple[sc.Scalar, ...]"
Loops: TypeAlias = "tuple[tuple[sc.ScalarVar, sc.Scalar], ...]"


@frozen(eq=False)
class Write:
    """The elements at `indices`, at each point of the loops at which the guards hold."""

    indices: Places
    loops: Loops
    guards: Places = ()


# --- writes that fill boxes -----------------------------------------------------------------------


@frozen(eq=False)
class FilledBox:
    """A box of which each element is written where the guards hold."""

    starts: tuple[Polynomial, ...]
    sizes: tuple[int, ...]
    guards: Places

    def beside(self, axis: int) -> object:
        """The key that boxes share if they can be joined along an axis."""
        rest = [
            (start.constant, start.form, size)
            for at, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True))
            if at != axis
        ]
        return self.guards, self.starts[axis].form, tuple(rest)


def filled(writes: Sequence[Write]) -> list[Write]:
    """The writes, those that fill boxes as few boxes of one loop for each axis.

    Law: the same elements are written.
    """
    boxes: list[FilledBox] = []
    others: list[Write] = []
    for write in writes:
        box = _box_of(write)
        if box is None:
            others.append(write)
        else:
            boxes.append(box)
    count = len(boxes) + 1
    while 1 < len(boxes) < count:
        count = len(boxes)
        for axis in range(len(boxes[0].starts)):
            boxes = _merged_along(axis, boxes)
    return [*(written for box in boxes if (written := _write_of(box)) is not None), *others]


@frozen(eq=False)
class BoxDigit:
    """A sum of loop variables, or of one number, times `parts`: each number below `extent`, or
    numbers up to `last` that are `gap` apart at most."""

    parts: Mapping[Key, int]
    extent: int
    gap: int = 1
    last: int = -1

    @property
    def greatest(self) -> int:
        """The greatest number."""
        return self.extent - 1 if self.last < 0 else self.last

    def scale(self, factors: Mapping[Key, int]) -> int | None:
        """The factor by which a sum with such coefficients multiplies the digit, or None."""
        scales = {divmod(factors.get(var, 0), part) for var, part in self.parts.items()}
        ((scale, rest), *others) = scales
        return scale if not rest and not others else None


def _box_of(write: Write) -> FilledBox | None:
    """The box that a write fills, or None if it leaves gaps or is guarded otherwise."""
    extents = {var: known(extent) or 0 for var, extent in write.loops}
    if not all(extents.values()):
        return None
    guards: list[sc.Scalar] = []
    cut: list[BoxDigit | None] = []
    for guard in dict.fromkeys([scalar for whole in write.guards for scalar in conjuncts(whole)]):
        if free_vars(guard).isdisjoint(extents):
            guards.append(guard)
        else:
            cut.append(_cut_digit(guard, extents))
    digits = [box_digit for box_digit in cut if box_digit is not None]
    in_cut = [var for digit in digits for var in digit.parts]
    if len(digits) < len(cut) or len(set(in_cut)) < len(in_cut):
        return None
    overlapping = _overlapping(write.indices, extents)
    rest_of = [var for var in extents if var not in in_cut and var not in overlapping]
    digits += [BoxDigit({var: 1}, extents[var]) for var in rest_of]
    digits += overlapping.values()
    counted = {key for digit in digits for key in digit.parts}
    starts: list[Polynomial] = []
    sizes: list[int] = []
    used: list[BoxDigit] = []
    for place in write.indices:
        of = polynomial(place)
        factors: dict[Key, int] = {
            key: factor for key, factor in of.terms.items() if key in counted
        }
        rest = {key: factor for key, factor in of.terms.items() if key not in counted}
        start = Polynomial(of.constant, rest)
        scaled = [(digit.scale(factors), digit) for digit in digits if digit.extent > 1]
        mine = [(scale, box_digit) for scale, box_digit in scaled if scale]
        if len(mine) < sum(scale != 0 for scale, _ in scaled) or any(
            not free_vars(atom).isdisjoint(extents) for atom in start.atoms()
        ):
            return None
        spans = [(scale * box_digit.gap, scale * box_digit.greatest) for scale, box_digit in mine]
        if (size := _dense(spans)) is None:
            return None
        starts.append(start)
        sizes.append(size)
        used += [box_digit for _, box_digit in mine]
    if len(set(used)) < len(used):
        return None  # a diagonal
    return FilledBox(tuple(starts), tuple(sizes), tuple(guards))


def _dense(digits: Sequence[tuple[int, int]]) -> int | None:
    """The number of values that a sum of digits takes, from 0 without gaps, or None if there are
    gaps; each digit is given by its step and maximum."""
    size = 1
    for gap, greatest in sorted(digits):
        if not 0 < gap <= size:
            return None
        size += greatest
    return size


def _overlapping(
    places: Places, extents: Mapping[sc.ScalarVar, int]
) -> dict[sc.ScalarVar, BoxDigit]:
    """The digits `min(16 * i, 12)`: where tiles begin of which the last overlaps, by their loop."""
    found: dict[sc.ScalarVar, BoxDigit] = {}
    atoms = dict.fromkeys([key for place in places for key in polynomial(place).terms])
    for atom in atoms:
        match atom:
            case sc.Min(left, sc.Lit(last)) if len(start := polynomial(left).terms) == 1:
                ((var, step),) = start.items()
                if polynomial(left).constant or not isinstance(var, sc.ScalarVar):
                    continue
                size, end = extents.get(var, 0), int(last)
                if step * (size - 1) >= end > max(-1, step * (size - 2)):
                    found[var] = BoxDigit({atom: 1}, size, step, end)
            case _:
                pass
    return found


def _cut_digit(guard: sc.Scalar, extents: Mapping[sc.ScalarVar, int]) -> BoxDigit | None:
    """The digit that a guard `a * i + b * j … < n` limits, or None."""
    match guard:
        case sc.Lt(left, right):
            slack = polynomial(right).plus(polynomial(left), -1).shifted(-1)
        case sc.Le(left, right):
            slack = polynomial(right).plus(polynomial(left), -1)
        case _:
            return None
    if slack.constant < 0 or not slack.terms.keys() <= extents.keys():
        return None
    step = slack.content()
    inside = [var for var in extents if var in slack.terms]
    parts: dict[Key, int] = {var: -slack.terms[var] // step for var in inside}
    size = _dense([(parts[var], parts[var] * (extents[var] - 1)) for var in inside])
    return None if size is None else BoxDigit(parts, min(size, slack.constant // step + 1))


def _merged_along(axis: int, boxes: Sequence[FilledBox]) -> list[FilledBox]:
    """The boxes, those as one that meet or overlap along an axis and are alike along all others."""
    groups: dict[object, list[FilledBox]] = {}
    for box in boxes:
        groups.setdefault(box.beside(axis), []).append(box)
    filled_boxes: list[FilledBox] = []
    for group in groups.values():
        first, *rest = sorted(group, key=lambda box: box.starts[axis].constant)
        for box in rest:
            apart = box.starts[axis].constant - first.starts[axis].constant
            if apart > first.sizes[axis]:
                filled_boxes.append(first)
                first = box
                continue
            sizes = list(first.sizes)
            sizes[axis] = max(sizes[axis], apart + box.sizes[axis])
            first = evolve(first, sizes=tuple(sizes))
        filled_boxes.append(first)
    return filled_boxes


def _write_of(box: FilledBox) -> Write | None:
    """The box as a write, or None if a number does not fit into an index."""
    places: list[sc.Scalar] = []
    loops: list[tuple[sc.ScalarVar, sc.Scalar]] = []
    for axis, (start, size) in enumerate(zip(box.starts, box.sizes, strict=True)):
        place = to_term(start)
        if place is None:
            return None
        if size > 1:
            var = sc.ScalarVar(Name("a place", axis), i64)
            loops.append((var, sc.index(size)))
            place = place + var
        places.append(place)
    return Write(tuple(places), tuple(loops), box.guards)


# --- writes that differ in constants -------------------------------------------------------------


def joined(writes: Sequence[Write], hint: str = "a write") -> list[Write]:
    """The writes, those as one whose constants are all points of a grid.

    The further loops are over variables of that name.  Law: the same elements are written.
    """
    if len(writes) < 2:
        return list(writes)
    groups: dict[object, list[tuple[Write, tuple[Polynomial, ...]]]] = {}
    for write in writes:
        places = tuple([polynomial(index) for index in write.indices])
        key = write.loops, write.guards, tuple([place.form for place in places])
        groups.setdefault(key, []).append((write, places))
    found: list[Write] = []
    for group in groups.values():
        points = {tuple([place.constant for place in places]) for _, places in group}
        grid = _grid(points) if len(group) > 1 else None
        first = next(w for w, p in group if tuple([e.constant for e in p]) == min(points))
        found += [write for write, _ in group] if grid is None else [_over(first, grid, hint)]
    return found


Steps: TypeAlias = "tuple[tuple[int, int], ...]"
"""The distance and count of neighbours along each axis."""


def _grid(points: set[tuple[int, ...]]) -> Steps | None:
    """The steps of a set of points, or None if they do not form a grid."""
    steps: list[tuple[int, int]] = []
    for along in zip(*points, strict=True):
        values = sorted(set(along))
        step = values[1] - values[0] if len(values) > 1 else 0
        if any(b - a != step for a, b in pairwise(values)):
            return None
        steps.append((step, len(values)))
    return tuple(steps) if len(points) == prod([count for _, count in steps]) else None


def _over(first: Write, grid: Steps, hint: str) -> Write:
    """A write at each point of a grid, from that with the least constants on."""
    indices, loops = [], list(first.loops)
    for at, (place, (step, count)) in enumerate(zip(first.indices, grid, strict=True)):
        if count > 1:
            var = sc.ScalarVar(Name(hint, at), i64)
            loops.append((var, sc.index(count)))
            place = place + step * var
        indices.append(place)
    return Write(tuple(indices), tuple(loops), first.guards)
