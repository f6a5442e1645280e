"""Cuts: slices of sliced, concatenated, transposed or filled tensors, and gathers at known indices.

Measure: operators; at equal count slices over what they cut.  What needs a known size does not
apply to a symbolic one.  No element is computed here: every rule is exact.

>>> from plica.ir.loop.scalar import index
>>> numbers(AxisSlice(index(1), 2, index(3)))
(1, 2, 3)
>>> bounds(1, 2, 3), bounds(0, 1, 0)
((1, 6), (0, 0))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np

from plica.core import Term
from plica.ir.graph.expression import const
from plica.ir.op.cut import AxisSlice, cut
from plica.ir.op.index import MAX_I32_PLACES
from plica.ir.type import known, same_dim
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.shape import is_order
from plica.rewrite.packs.word import INTEGERS, Shape, op, refilled, shape, v, x
from plica.rewrite.pattern import Rest, hole, holes

slice_, concat, transpose, take = map(op, ["slice", "concat", "transpose", "take"])
reshape, broadcast_to = op("reshape"), op("broadcast_to")

# Any: holes for attributes: where cuts start and stop, by which steps, along which axes.
a, i, j, k, s, t, r, o, w = holes("a i j k s t r o w")
p: Any = hole("p", when=is_order)
n: Any = hole("n", constant=True, rank=0, dtypes=INTEGERS)
c: Any = hole("c", constant=True, rank=range(1, 9), dtypes=INTEGERS)


def numbers(of: AxisSlice) -> tuple[int, int, int] | None:
    """A slice as start, step and length, or None if one is symbolic."""
    start, length = known(of.start), known(of.length)
    return None if start is None or length is None else (start, of.step, length)


def bounds(start: int, step: int, length: int) -> tuple[int, int]:
    """Where a slice of known length and positive step starts and stops."""
    return (start, start + step * (length - 1) + 1) if length else (0, 0)


def cuts(sizes: Shape, starts: Any, stops: Any, steps: Any, axes: Any) -> dict[int, AxisSlice]:
    """The cut along each axis that a slice names."""
    by = (1,) * len(starts) if steps is None else steps
    along = range(len(starts)) if axes is None else axes
    return {
        at % len(sizes): cut(sizes[at], start, stop, step)
        for start, stop, step, at in zip(starts, stops, by, along, strict=True)
    }


def sliced(of: Term, wanted: Mapping[int, tuple[int, int, int]]) -> Term:
    """A slice by known cuts: start, step, length by axis."""
    axes = tuple(sorted(wanted))
    ends = [bounds(*wanted[at]) for at in axes]
    steps = tuple(wanted[at][1] for at in axes)
    done: Term = slice_(
        of,
        tuple(start for start, _ in ends),
        tuple(stop for _, stop in ends),
        None if set(steps) <= {1} else steps,
        axes,
    )
    return done


@attrs.frozen
class IsWhole:
    """A guard: a slice leaves nothing out."""

    name: str
    attributes: tuple[str, ...]  # where it starts and stops, by which steps, along which axes

    def __call__(self, match: PatternMatch) -> bool:
        sizes = shape(match[self.name])
        return all(
            known(each.start) == 0 and each.step == 1 and same_dim(each.length, sizes[at])
            for at, each in cuts(sizes, *(match[name] for name in self.attributes)).items()
        )


def sliced_once(match: PatternMatch) -> Term | None:
    """One slice for two."""
    sizes = shape(match.x)
    inner = cuts(sizes, match.i, match.j, match.s, match.a)
    between = tuple(inner[at].length if at in inner else size for at, size in enumerate(sizes))
    outer = cuts(between, match.k, match.r, match.t, match.o)
    wanted: dict[int, tuple[int, int, int]] = {}
    for at in {**inner, **outer}:
        first = numbers(inner[at]) if at in inner else (0, 1, -1)
        second = numbers(outer[at]) if at in outer else None
        if first is None or first[1] < 0 or (at in outer and (second is None or second[1] < 0)):
            return None
        if second is None:
            wanted[at] = first
        else:
            start, step, length = second
            wanted[at] = first[0] + first[1] * start, first[1] * step, length
    return sliced(match.x, wanted)


def of_one_part(match: PatternMatch) -> Term | None:
    """A slice inside one part of a concatenation is a slice of that part."""
    given = match.u
    sizes = shape(concat(given, axis=match.w))
    at = match.w % len(sizes)
    found = {
        axis: numbers(each)
        for axis, each in cuts(sizes, match.i, match.j, match.s, match.a).items()
    }
    wanted = {axis: each for axis, each in found.items() if each is not None and each[1] > 0}
    if at not in wanted or len(wanted) < len(found) or not wanted[at][2]:
        return None
    start, stop = bounds(*wanted[at])
    offset = 0
    for each in given:
        size = known(shape(each)[at])
        if size is None or offset > start:
            return None
        if stop <= offset + size:
            return sliced(each, wanted | {at: (start - offset, *wanted[at][1:])})
        offset += size
    return None


def seam_closed(match: PatternMatch) -> Term | None:
    """Two slices of which the second begins where the first ends, joined again."""
    sizes = shape(match.x)
    first, second = (
        cuts(sizes, start, stop, None, match.a)
        for start, stop in ((match.i, match.k), (match.k, match.j))
    )
    at = match.w % len(sizes)
    if list(first) != [at]:
        return None
    left, right = numbers(first[at]), numbers(second[at])
    if left is None or right is None or left[0] + left[2] != right[0]:
        return None
    return sliced(match.x, {at: (left[0], 1, left[2] + right[2])})


def slice_before_transpose(match: PatternMatch) -> Term:
    """A slice of a transpose, cut first."""
    axes = range(len(match.i)) if match.a is None else match.a
    there = tuple(match.p[at] for at in axes)
    done: Term = transpose(slice_(match.x, match.i, match.j, match.s, there), match.p)
    return done


def at_known_place(match: PatternMatch) -> Term | None:
    """The part that a constant index names, as a slice."""
    sizes = shape(match.x)
    at = match.w % len(sizes)
    size, place = known(sizes[at]), int(match.n.numpy()[()])
    if size is None or not -size <= place < size:
        return None
    part = sliced(match.x, {at: (place % size, 1, 1)})
    done: Term = reshape(part, (*sizes[:at], *sizes[at + 1 :]))
    return done


def at_known_places(match: PatternMatch) -> Term | None:
    """What constant indices name, all of which are inside: no call can fail."""
    sizes = shape(match.x)
    size, places = known(sizes[match.w % len(sizes)]), match.c.numpy()
    if size is None or not places.size or not 0 < size <= MAX_I32_PLACES:
        return None
    if not -size <= places.min() <= places.max() < size:
        return None
    done: Term = take(match.x, const((places % size).astype(np.int32)), match.w, "clip")
    return done


# fmt: off
# ruff: noqa: E501  # a rule is one line
CUT: Final[Pack] = pack(
    "cut",
    rule("slice-whole",           slice_(x, i, j, s, a),                        x, when=IsWhole("x", tuple("ijsa"))),
    rule("slice-slice",           slice_(slice_(x, i, j, s, a), k, r, t, o),    sliced_once),
    rule("slice-of-concat",       slice_(concat((Rest("u"),), axis=w), i, j, s, a), of_one_part),
    rule("slice-of-transpose",    slice_(transpose(x, p), i, j, s, a),          slice_before_transpose),
    rule("slice-of-filled",       *refilled(slice_(broadcast_to(v, t), i, j, s, a))),
    rule("concat-of-slices",      concat((slice_(x, i, k, None, a), slice_(x, k, j, None, a)), axis=w), seam_closed),
    rule("take-at-known-place",   take(x, n, w, "raise"),                       at_known_place),
    rule("take-at-known-places",  take(x, c, w, "raise"),                       at_known_places),
    version="1",
    doc="Slices of slices, of joined, turned and filled tensors; elements at known places.",
)
# fmt: on
