"""Axes: functions of axes and orders that right sides apply, and guards that speak of axes.

Each has a meaning on sets of axes of any rank, by which the prover reads it; that the numbers here
have that meaning is tested for all axes up to rank 5.

>>> merged.compute((0, 2), (1,), range(4))
(0, 2, 3)
>>> remaining.compute((2, 0, 1), (0,), False)
(0, 1)
>>> composed.compute((1, 2, 0), (2, 0, 1))
(0, 1, 2)
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeAlias

import attrs

from plica.core import Term
from plica.ir.graph.expression import Expr
from plica.ir.type import known
from plica.rewrite.match import PatternMatch
from plica.rewrite.packs.word import Shape, ascending, op, same_shape, shape
from plica.rewrite.pattern import derived

Axes: TypeAlias = tuple[int, ...]


def rank_of(of: Expr | Sized) -> int:
    """The rank of a tensor, or of a shape."""
    return len(shape(of) if isinstance(of, Expr) else of)


@derived
def explicit(axes: Axes | None, of: Expr | Sized) -> Axes:
    """Axes counted from the front, in order; None is all of them."""
    return ascending(axes, rank_of(of))


@derived
def explicit_order(order: Axes | None, of: Expr) -> Axes:
    """The order of a transpose with its axes counted from the front."""
    rank = rank_of(of)
    return tuple(each % rank for each in (range(rank)[::-1] if order is None else order))


@derived
def every(of: Expr) -> Axes:
    """All axes of a tensor."""
    return tuple(range(rank_of(of)))


@derived
def merged(first: Axes | None, second: Axes | None, of: Expr | Sized) -> Axes:
    """The axes that two reductions fold, the second counted after the first."""
    rank = rank_of(of)
    gone = ascending(first, rank)
    left = [at for at in range(rank) if at not in gone]
    return tuple(sorted((*gone, *(left[at] for at in ascending(second, len(left))))))


@derived
def united(first: Axes | None, second: Axes | None, of: Expr | Sized) -> Axes:
    """The axes in one of two sets."""
    rank = rank_of(of)
    return tuple(sorted({*ascending(first, rank), *ascending(second, rank)}))


@derived
def through(order: Axes, axes: Axes | None) -> Axes:
    """The axes before a transpose that are those axes behind it."""
    return tuple(sorted(order[at] for at in ascending(axes, len(order))))


@derived
def remaining(order: Axes, axes: Axes | None, kept: bool) -> Axes:
    """A permutation without some axes of its result, counted among those that are left.

    Where the axes are kept, as axes of size 1, it is the permutation.
    """
    if kept:
        return order
    gone = ascending(axes, len(order))
    left = [at for i, at in enumerate(order) if i not in gone]
    return tuple(sorted(left).index(at) for at in left)


@derived
def exclusive(first: Axes | None, second: Axes | None, of: Expr | Sized) -> Axes:
    """The axes in exactly one of two sets."""
    rank = rank_of(of)
    return tuple(sorted({*ascending(first, rank)} ^ {*ascending(second, rank)}))


@derived
def longer(axes: Axes | None, of: Expr) -> Axes:
    """The axes that have more than one place."""
    sizes = shape(of)
    return tuple(at for at in ascending(axes, len(sizes)) if known(sizes[at]) not in (0, 1))


@derived
def flipped(of: Expr, axes: Axes) -> Term:
    """A tensor flipped along axes, if there are any."""
    made: Term = op("flip")(of, axes) if axes else of
    return made


@derived
def composed(inner: Axes, outer: Axes) -> Axes:
    """The permutation that two transposes make together."""
    return tuple(inner[each] for each in outer)


@derived
def without(of: Expr, wide: Shape, axes: Axes | None, kept: bool) -> Shape:
    """The shape of a tensor without the axes that are reduced once it is broadcast."""
    sizes = shape(of)
    skip = len(wide) - len(sizes)
    gone = ascending(axes, len(wide))
    return tuple(size for at, size in enumerate(sizes) if kept or at + skip not in gone)


@derived
def as_shape(of: Expr, wanted: Shape) -> Term:
    """A tensor reshaped, where it has another shape."""
    made: Term = of if same_shape(shape(of), wanted) else op("reshape")(of, wanted)
    return made


@attrs.frozen
class NamesAll:
    """A guard: axes are all that a shape has."""

    axes: str
    large: str

    def __call__(self, match: PatternMatch) -> bool:
        rank = len(match[self.large])
        return len(ascending(match[self.axes], rank)) == rank


@attrs.frozen
class AxesOfOne:
    """A guard: the axes that an attribute names have the size 1."""

    name: str
    axes: str

    def __call__(self, match: PatternMatch) -> bool:
        sizes = shape(match[self.name])
        return all(known(sizes[at]) == 1 for at in ascending(match[self.axes], len(sizes)))


@attrs.frozen
class AxisOfOne:
    """A guard: the axis that an attribute names has the size 1."""

    name: str
    axis: str

    def __call__(self, match: PatternMatch) -> bool:
        return known(shape(match[self.name])[match[self.axis]]) == 1


@attrs.frozen
class CreatesAxes:
    """A guard: a broadcast creates all axes that an attribute names, and none of them is empty."""

    name: str
    wide: str
    axes: str

    def __call__(self, match: PatternMatch) -> bool:
        inner, wide = shape(match[self.name]), match[self.wide]
        skip = len(wide) - len(inner)
        return all(
            known(wide[at]) and (at < skip or known(inner[at - skip]) == 1)
            for at in ascending(match[self.axes], len(wide))
        )


@attrs.frozen
class SameShape:
    """A guard: an attribute is the shape that a tensor has."""

    name: str
    wanted: str

    def __call__(self, match: PatternMatch) -> bool:
        return same_shape(shape(match[self.name]), match[self.wanted])


@attrs.frozen
class KeepsOrder:
    """A guard: a transpose moves nothing in memory, since only axes of size 1 change places."""

    name: str
    order: str

    def __call__(self, match: PatternMatch) -> bool:
        sizes = shape(match[self.name])
        order = explicit_order.compute(match[self.order], match[self.name])
        wide = [at for at in order if known(sizes[at]) != 1]
        return wide == sorted(wide)


@attrs.frozen
class PrependsAxes:
    """A guard: a shape is that of a tensor behind axes of size 1."""

    name: str
    wanted: str

    def __call__(self, match: PatternMatch) -> bool:
        inner, wanted = shape(match[self.name]), match[self.wanted]
        skip = len(wanted) - len(inner)
        ones = skip >= 0 and all(known(each) == 1 for each in wanted[:skip])
        return ones and same_shape(wanted[skip:], inner)


@attrs.frozen
class NoLonger:
    """A guard: an attribute has no more items than a tensor has axes."""

    items: str
    name: str

    def __call__(self, match: PatternMatch) -> bool:
        return len(match[self.items]) <= len(shape(match[self.name]))
