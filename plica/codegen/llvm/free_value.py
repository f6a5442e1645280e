"""Easy values: what needs no instruction, or only those of addresses.

>>> from plica.codegen.llvm.lane import Lanes
>>> from plica.codegen.llvm.writer import LlvmWriter
>>> from plica.ir.loop.tensor import axis
>>> around, i = LoopContext(Lanes(LlvmWriter())), axis("i")
>>> around.bind(i, LaneValue("%i"), (0, 3))
>>> decided(i < 4, i, index(4), around), decided(i < 3, i, index(3), around)
(LaneValue(text='true', step=0, plus=0), None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import eq, floordiv, le, lt, mod, ne
from typing import Final

from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, LaneValue, constant, mask_of
from plica.codegen.llvm.loop_context import LoopContext
from plica.ir.loop.scalar import (
    Add,
    And,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Scalar,
    Select,
    Sub,
    dtype_of,
    index,
)
from plica.ir.type import i32, i64
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.scope import more_than_inside

EASY: Final = (Add, Sub, Mul, And, Or, Not, Select, Lt, Le, Eq, Ne, FloorDiv, FloorMod, Min, Max)
"""What may take no instruction."""

_COMPARED: Final[dict[type, Callable[[int, int], bool]]] = {Lt: lt, Le: le, Eq: eq, Ne: ne}

__all__ = ["EASY", "decided", "easy", "index", "is_arithmetic", "summed"]


def is_arithmetic(node: Scalar) -> bool:
    """Whether a node computes a value other than an index, which always takes an instruction."""
    return isinstance(node, _ARITHMETIC) and dtype_of(node) is not i64


_ARITHMETIC: Final = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)


def easy(node: Scalar, found: Sequence[LaneValue], around: LoopContext) -> LaneValue | None:
    """The value of a node from those of its operands, or None if it takes an instruction."""
    lanes = around.lanes
    match node:
        case Add() | Sub() | Mul():
            return summed(node, found[0], found[1], around) if dtype_of(node) is i64 else None
        case And():
            return lanes.both(*found)
        case Or():
            return lanes.either(*found)
        case Not():
            return lanes.negated(*found)
        case Select() if found[0] in (TRUE, FALSE):
            return found[1] if found[0] == TRUE else found[2]
        case Select(_, Load(), Lit(value)) if value == 0 and str(value) != "-0.0":
            return found[1] if _says_inside(node, around) else None
        case Lt(left, right) | Le(left, right) | Eq(left, right) | Ne(left, right):
            if (known := decided(node, left, right, around)) is not None:
                return known
            if (known := _known_lanes(node, found, lanes.count)) is not None:
                return known
            steps = [each.step for each in found]
            if dtype_of(left) is not i64 or None in steps or not any(steps):
                return None
            ends = (*around.interval(left), *around.interval(right))
            least, most = i32.bounds
            narrow = all(least <= end <= most for end in ends)
            a, b = found
            return lanes.compared(_WORDS[type(node)], a, b, i32 if narrow else i64)
        case FloorDiv() | FloorMod() | Min() | Max() if dtype_of(node) is i64:
            x, y = found[0].number, found[1].number
            if x is not None and y is not None:
                return _folded(node, x, y)
            return None if y is None else _folded_in_lanes(node, found[0], y, lanes)
        case _:
            return None


_WORDS: Final = {Lt: "slt", Le: "sle", Eq: "eq", Ne: "ne"}


def summed(node: Scalar, a: LaneValue, b: LaneValue, around: LoopContext) -> LaneValue:
    """The sum, difference or product of two indices."""
    lanes = around.lanes
    # Only instructions carry no-overflow flags.
    facts = "nsw " if (a.text or b.text) and around.is_near(node, (a, b)) else ""
    if isinstance(node, Add):
        return lanes.add(a, b, facts)
    return lanes.sub(a, b, facts) if isinstance(node, Sub) else lanes.mul(a, b, facts)


def decided(node: Scalar, left: Scalar, right: Scalar, around: LoopContext) -> LaneValue | None:
    """A comparison of integers whose outcome the loops around it tell."""
    if not dtype_of(left).is_integer:
        return None
    a, b = around.interval(left)
    c, d = around.interval(right)
    match node:
        case Lt():
            yes, no = b < c, a >= d
        case Le():
            yes, no = b <= c, a > d
        case Eq():
            yes, no = a == b == c == d, b < c or d < a
        case _:
            yes, no = b < c or d < a, a == b == c == d
    return TRUE if yes else FALSE if no else None


def _known_lanes(node: Scalar, found: Sequence[LaneValue], count: int) -> LaneValue | None:
    """A comparison of numbers that are known in every lane: which lanes of a vector take part is no
    question then, which processors without masks would ask lane by lane."""
    if not count or any(each.text or each.step is None for each in found):
        return None
    (_, step, a), (_, other, b) = found
    return _outcomes(type(node), (a, step or 0), (b, other or 0), count)


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def _outcomes(kind: type, left: tuple[int, int], right: tuple[int, int], count: int) -> LaneValue:
    """The result of a comparison per lane, for two numbers with offsets per lane."""
    holds, (a, step), (b, other) = _COMPARED[kind], left, right
    return mask_of(tuple([holds(a + step * n, b + other * n) for n in range(count)]))


def _says_inside(choice: Select, around: LoopContext) -> bool:
    """Whether a condition only states that a load is in bounds; the value is 0 elsewhere."""
    return all(
        isinstance(each, Lt | Le) and decided(each, each.left, each.right, around) == TRUE
        for each in more_than_inside(choice)
    )


def _folded_in_lanes(node: Scalar, of: LaneValue, by: int, lanes: Lanes) -> LaneValue | None:
    """A quotient or a remainder whose lanes are known distances apart: they add known numbers to a
    multiple of the divisor."""
    if not lanes.count or not isinstance(node, FloorDiv | FloorMod) or by <= 0:
        return None
    apart = lanes.distances(of)
    if apart is None or lanes.multiple_of(apart.shared.text) % by:
        return None
    shared, whole = apart.shared, constant(0)
    operation = floordiv if isinstance(node, FloorDiv) else mod
    if shared.text and isinstance(node, FloorDiv):
        whole = LaneValue(lanes.pure(f"sdiv exact i64 {shared.text}, {by}"))
    return lanes.at_distances(whole, [operation(shared.plus + each, by) for each in apart.own])


def _folded(node: FloorDiv | FloorMod | Min | Max, x: int, y: int) -> LaneValue:
    """An operation on two numbers that are known."""
    match node:
        case Min():
            return constant(min(x, y))
        case Max():
            return constant(max(x, y))
        case _ if y == 0:
            return constant(0)
        case _:
            return constant(x // y if isinstance(node, FloorDiv) else x % y)
