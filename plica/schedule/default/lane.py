"""Lanes: whether neighbours along an axis are neighbours in memory in all that a term reads.

>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dtype import f32
>>> x, i, j = buffer("x", (4, 8), f32), axis("i"), axis("j")
>>> is_row(x[i, j] + x[i, 0], j), is_row(x[j, i], j), is_row(x[i, j * 2], j, apart=2)
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from plica.analysis.constant_bound import interval
from plica.core import Term, free_vars
from plica.ir.loop import Load, Reduce, Scalar, ScalarVar as Axis, dtype_of
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import Cast, FloorDiv, FloorMod, Lit, Pow
from plica.ir.type import f64, i32, known, polynomial

EXACT_QUOTIENT_BITS: Final = 32  # bits of integers that floats divide exactly, and so in lanes
MAX_STRIDE: Final = 4
"""Elements of a row of open length that are no further apart are picked from whole vectors."""

REPEATS: Final = (2, 4, 8)
"""How many lanes may read one place of a row: vectors begin with the first of them."""


def nested(of: Scalar) -> frozenset[Reduce]:
    """The reductions that are evaluated whenever a term is, and those whenever such a one is."""
    reductions = list(exposed(of))
    for reduction in reductions:
        reductions += [one for one in exposed(reduction.body) if one not in reductions]
    return frozenset(reductions)


def is_row(
    body: Scalar,
    axis: Axis,
    inside: Collection[Reduce] = (),
    apart: int = 1,
    *,
    named: bool = False,
) -> bool:
    """Whether everything a term reads is contiguous along an axis, or the same all along it.

    Only those reductions may be part of it that are `inside`, and neighbours may be this many
    elements `apart`; or anywhere, if a row of narrow numbers names their places, and may (`named`).
    """
    seen: set[Term] = set()
    stack: list[Term] = [body]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Scalar):
            continue
        seen.add(node)
        if isinstance(node, Reduce) and node not in inside:
            return False
        if _is_lane_by_lane(node) and axis in free_vars(node):
            return False
        if isinstance(node, Load) and axis in free_vars(node):
            if named and _is_repeated(node, axis):
                continue
            if named and _is_named(node, axis):
                stack.extend(node._children)
                continue
            if any(axis in free_vars(index) for index in node.indices[:-1]):
                return False
            if (step := polynomial(node.indices[-1]).get(frozenset({(axis, 1)}))) is None:
                return False
            rest = polynomial(node.indices[-1] - axis * step[1])
            if not 1 <= step[1] <= apart or any(
                axis in free_vars(atom) for atoms, _ in rest.values() for atom in atoms
            ):
                return False
        stack.extend(node._children)
    return True


def _is_lane_by_lane(of: Scalar) -> bool:
    """Whether machines do it for one lane at a time."""
    if isinstance(of, FloorDiv | FloorMod):
        return dtype_of(of).is_float or dtype_of(of).bits > EXACT_QUOTIENT_BITS
    return isinstance(of, Pow) and (dtype_of(of) is f64 or not dtype_of(of).is_float)


def _is_repeated(of: Load, axis: Axis) -> bool:
    """Whether each element of a row is read by as many lanes as divide a vector."""
    match of.indices[-1]:
        case FloorDiv(left, Lit(int() as times)) if left is axis and times in REPEATS:
            return not any(axis in free_vars(index) for index in of.indices[:-1])
    return False


def _is_named(of: Load, axis: Axis) -> bool:
    """Whether memory says where neighbours along an axis are read, and all of it is inside.

    Where each lane were asked for, or places are numbers of 64 bits, lanes one by one are as fast.
    """
    for index, size in zip(of.indices, of.buffer.shape, strict=True):
        if axis in free_vars(index):
            low, high = interval(index, {}, {})
            narrow = isinstance(index, Cast) and dtype_of(index.value) is i32
            if not narrow or not 0 <= low <= high < (known(size) or 0):
                return False
    return True
