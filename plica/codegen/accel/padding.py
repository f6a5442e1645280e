"""Padding: the constraints that a guarded copy puts on its loops.

    for r, c:  near[r, c] = far[h + r - 1, c - 1] if 0 < h + r and h + r < 9 and … else 0

A guard is a conjunction of comparisons, each linear in one loop of the copy: so it cuts something
off the beginning or the end of that loop, and there the copy writes zeros.

>>> import numpy as np
>>> from plica.ir.loop.scalar import And, Lt
>>> from plica.ir.loop.tensor import axis
>>> h, r = axis("h"), axis("r")
>>> found = margins(And(Lt(sc.index(0), h + r), Lt(h + r, sc.index(9))), ((r, 6),))
>>> before, after = found[r]
>>> from plica.codegen.accel.unroll import evaluate
>>> [[int(each) for each in evaluate((before, after), {h: np.array(at)})] for at in (0, 3, 5)]
[[1, 0], [0, 0], [0, 2]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plica.analysis.index.polynomial import Polynomial, polynomial, to_term
from plica.core import post_order
from plica.ir.loop import scalar as sc
from plica.runtime.error import Diagnostic, UnsupportedError

Margin = tuple[sc.Scalar, sc.Scalar]  # the numbers of iterations cut off before and after

_ZERO: Final = sc.index(0)


def unguarded(value: sc.Scalar) -> tuple[sc.Scalar | None, sc.Scalar]:
    """The guard of a copied value and the value; a guard that leaves anything but 0 is refused."""
    if not isinstance(value, sc.Select):
        return None, value
    if not isinstance(value.orelse, sc.Lit) or value.orelse.value != 0:
        raise _refused("What is outside is filled with zeros.", str(value.orelse))
    if not isinstance(value.then, sc.Load):
        raise _refused("A guarded store copies.", type(value.then).__name__)
    return value.condition, value.then


def margins(
    guard: sc.Scalar | None, loops: Sequence[tuple[sc.ScalarVar, int]]
) -> Mapping[sc.ScalarVar, Margin]:
    """The part of each loop that a guard cuts off; refuses other comparisons."""
    extents = dict(loops)
    found: dict[sc.ScalarVar, Margin] = {}
    stack = [] if guard is None else [guard]
    while stack:
        scalar = stack.pop()
        match scalar:
            case sc.And(left, right):
                stack += [left, right]
            case sc.Lt(left, right):
                _cut(polynomial(right).plus(polynomial(left), -1), -1, extents, found)
            case sc.Le(left, right):
                _cut(polynomial(right).plus(polynomial(left), -1), 0, extents, found)
            case sc.Eq(left, right) if left is right:
                pass
            case _:
                raise _refused("A guard is made of comparisons.", type(scalar).__name__)
    return found


def _cut(
    distance: Polynomial,
    slack: int,
    extents: Mapping[sc.ScalarVar, int],
    found: dict[sc.ScalarVar, Margin],
) -> None:
    """Take in that a distance, and a little, is not negative."""
    inside = [key for key in distance.terms if isinstance(key, sc.ScalarVar) and key in extents]
    rest = {key: value for key, value in distance.terms.items() if key not in inside}
    hidden = [
        term
        for key in rest
        for atom in Polynomial(0, {key: 1}).atoms()
        for term in post_order(atom)
        if term in extents
    ]
    if len(inside) != 1 or hidden or abs(distance.terms[inside[0]]) != 1:
        raise _refused("A guard compares one loop of its copy.", f"{len(inside) + len(hidden)}")
    (var,) = inside
    assert isinstance(var, sc.ScalarVar)
    room = to_term(Polynomial(distance.constant + slack, rest))
    assert room is not None  # small numbers only
    before, after = found.get(var, (_ZERO, _ZERO))
    most = sc.index(extents[var])
    if distance.terms[var] > 0:  # var >= -room
        before = sc.Max(before, sc.Min(-room, most))
    else:  # var <= room
        after = sc.Max(after, sc.Min(sc.index(extents[var] - 1) - room, most))
    found[var] = before, after


def _refused(message: str, found: str) -> UnsupportedError:
    return UnsupportedError(Diagnostic("unsupported", message, None, None, found))
