"""Writes: elements that stores reach over some loops, and which of them are one write.

Writes that differ in constants alone are one write with further loops: `4*j`, `4*j + 1`, `4*j + 2`,
`4*j + 3` are `4*j + v` for `v < 4`.  A write whose places are all numbers of so many digits fills a
box, whatever its loops: `16*i + j` for `i < 4`, `j < 16` is `v` for `v < 64`.  Boxes that meet
along one axis are one box.

>>> from plica.ir.type.dim import dim_var
>>> i, j = dim_var("i"), dim_var("j")
>>> tiles = Write((16 * i + j + 1,), ((i, sc.index(4)), (j, sc.index(16))))
>>> border = [Write((sc.index(at),), ()) for at in (0, 65)]
>>> (whole,) = filled([*border, tiles])
>>> [known(extent) for _, extent in whole.loops]
[66]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TypeAlias

from attrs import evolve, frozen

from plica.analysis.index.polynomial import Polynomial, polynomial, to_term
from plica.core.binding import free_vars
from plica.core.name import Name
from plica.ir.loop import scalar as sc
from plica.ir.type.dim import known
from plica.ir.type.dtype import i64

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
        """What boxes have in common that can be one along an axis."""
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


def _box_of(write: Write) -> FilledBox | None:
    """The box that a write fills, None where it leaves gaps or its guards depend on its loops."""
    extents = {var: known(extent) or 0 for var, extent in write.loops}
    if not all(extents.values()) or any(
        not free_vars(each).isdisjoint(extents) for each in write.guards
    ):
        return None
    starts: list[Polynomial] = []
    sizes: list[int] = []
    told: set[sc.ScalarVar] = set()
    for place in write.indices:
        of = polynomial(place)
        mine = [(f, key) for key, f in of.terms.items() if key in extents]
        rest = Polynomial(of.constant, {k: f for k, f in of.terms.items() if k not in extents})
        if any(not free_vars(each).isdisjoint(extents) for each in rest.atoms()):
            return None
        size = 1
        for factor, var in sorted(mine, key=lambda each: each[0]):
            assert isinstance(var, sc.ScalarVar)
            if var in told or (extents[var] > 1 and not 0 < factor <= size):
                return None
            told.add(var)
            size += factor * (extents[var] - 1)
        starts.append(rest)
        sizes.append(size)
    return FilledBox(tuple(starts), tuple(sizes), write.guards)


def _merged_along(axis: int, boxes: Sequence[FilledBox]) -> list[FilledBox]:
    """The boxes, those as one that meet or overlap along an axis and are alike along all others."""
    groups: dict[object, list[FilledBox]] = {}
    for box in boxes:
        groups.setdefault(box.beside(axis), []).append(box)
    found: list[FilledBox] = []
    for group in groups.values():
        first, *rest = sorted(group, key=lambda box: box.starts[axis].constant)
        for box in rest:
            apart = box.starts[axis].constant - first.starts[axis].constant
            if apart > first.sizes[axis]:
                found.append(first)
                first = box
                continue
            sizes = list(first.sizes)
            sizes[axis] = max(sizes[axis], apart + box.sizes[axis])
            first = evolve(first, sizes=tuple(sizes))
        found.append(first)
    return found


def _write_of(box: FilledBox) -> Write | None:
    """The box as a write, None where a number does not fit into an index."""
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
        places = tuple([polynomial(each) for each in write.indices])
        key = write.loops, write.guards, tuple([each.form for each in places])
        groups.setdefault(key, []).append((write, places))
    found: list[Write] = []
    for group in groups.values():
        points = {tuple([each.constant for each in places]) for _, places in group}
        grid = _grid(points) if len(group) > 1 else None
        first = next(w for w, p in group if tuple([e.constant for e in p]) == min(points))
        found += [write for write, _ in group] if grid is None else [_over(first, grid, hint)]
    return found


Steps: TypeAlias = "tuple[tuple[int, int], ...]"
"""How far neighbours are apart along each axis, and how many there are."""


def _grid(points: set[tuple[int, ...]]) -> Steps | None:
    """The steps of points, None where they are not all points of a grid."""
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
