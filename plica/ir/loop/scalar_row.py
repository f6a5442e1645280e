"""Rows of scalar operators: all that is known of one, in one place.

A row defines an operator's types, its meaning on arrays and numbers, its spelling in scripts, LLVM
and C-like languages, its cost, interval, derivative and laws. The rows are in
`plica.ir.loop.scalar_table`; everything else queries them. The classes of `plica.ir.loop.scalar`
(`Add`, `Mul`, …) are patterns; intrinsics have a name and no class.

How code is written, by the kind of the operands:

    LLVM    "fadd"          an instruction on the operands
            "@llvm.sqrt"    an intrinsic of LLVM, whose name ends with its type
            "@exp"          a function of the C library (a formula of ours where there is one)
            ""              the first operand itself
    C       "{0} + {1}"     a template; {e} is the `f` after functions of f32, {b} the bits, {m} a
                            mask of them
            "@p_abs"        a helper of the target's prelude, by its dtype

What no such word says is a special case of the emitter, under the name of the operator.

Intervals of scalar operators: the range of the result, from the ranges of the operands.

An interval is a pair of real numbers, infinities included; integers are exact (Python's own).  What
wraps around or rounds is not looked at here: who asks compares with the bounds of the dtype.

>>> product((-2, 3), (4, 5)), quotient((7, 9), (2, 2)), within(-1.0, 1.0)((0.0, 9.0))
((-10, 15), (3, 4), (-1.0, 1.0))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from attrs import field, frozen

from plica.runtime.element import Kind

FEWEST_BITS: Final = 8  # bits of the narrowest word that is shifted


def total(a: Interval, b: Interval) -> Interval:
    """Of a sum."""
    return a[0] + b[0], a[1] + b[1]


def difference(a: Interval, b: Interval) -> Interval:
    """Of a difference."""
    return a[0] - b[1], a[1] - b[0]


def product(a: Interval, b: Interval) -> Interval:
    """Of a product."""
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _times(x: float, y: float) -> float:
    return x * y if x and y else 0  # and not nan where the other is infinite


def quotient(a: Interval, b: Interval) -> Interval | None:
    """Of a quotient rounded down, by a positive divisor."""
    if b[0] <= 0:
        return None
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def remainder(a: Interval, b: Interval) -> Interval | None:
    """Of a remainder by a positive divisor of integers."""
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def common_bits(a: Interval, b: Interval) -> Interval | None:
    """Of a bitwise and of integers: no greater than a side that is not negative."""
    tops = [high for low, high in (a, b) if low >= 0]
    return (0, min(tops)) if tops else None


def all_bits(a: Interval, b: Interval) -> Interval | None:
    """Of a bitwise or of integers that are not negative: all bits of both sides may be set."""
    if min(a[0], b[0]) < 0 or math.isinf(max(a[1], b[1])):
        return None
    return max(a[0], b[0]), (1 << int(max(a[1], b[1])).bit_length()) - 1


def shifted_left(a: Interval, b: Interval) -> Interval | None:
    """Of a shift by a number of places that is not negative."""
    return product(a, powers) if (powers := _powers(b)) is not None else None


def shifted_right(a: Interval, b: Interval) -> Interval | None:
    """Of a shift by a number of places that is not negative: rounds down."""
    return quotient(a, powers) if (powers := _powers(b)) is not None else None


def _powers(places: Interval) -> Interval | None:
    """The factor of a left shift, or None if the shift may exceed the word."""
    low, high = places
    return (1 << int(low), 1 << int(high)) if low >= 0 and high < FEWEST_BITS else None


def least(a: Interval, b: Interval) -> Interval:
    """Of the lesser."""
    return min(a[0], b[0]), min(a[1], b[1])


def greatest(a: Interval, b: Interval) -> Interval:
    """Of the greater."""
    return max(a[0], b[0]), max(a[1], b[1])


def hull(a: Interval, b: Interval) -> Interval:
    """Of either."""
    return min(a[0], b[0]), max(a[1], b[1])


def size(a: Interval) -> Interval:
    """Of the absolute value."""
    low = 0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return low, max(abs(a[0]), abs(a[1]))


def fused(a: Interval, b: Interval, c: Interval) -> Interval:
    """Of a product and a sum."""
    return total(product(a, b), c)


def within(low: float, high: float) -> Range:
    """The interval of a bounded function."""
    return lambda *_: (low, high)


def rising(function: Callable[..., Any], start: float = -math.inf) -> Range:
    """Of a function of numpy that never falls, defined from `start` on."""

    def found(a: Interval) -> Interval | None:
        if not a[0] >= start:
            return None
        with np.errstate(all="ignore"):
            return float(function(float(a[0]))), float(function(float(a[1])))

    return found


# Any: numbers, arrays and terms alike: whatever has the operators of Python.
Function: TypeAlias = Callable[..., Any]
Interval: TypeAlias = "tuple[float, float]"
Range: TypeAlias = "Callable[..., Interval | None]"
Cost = Literal["add", "multiply", "divide", "compare", "function", "logic", "select", "other"]
Unit = Literal["zero", "one", "least", "greatest"]
Law = Literal["commutative", "associative", "idempotent"]


class Calls(Protocol):
    """Operators by name, applied to whatever a derivative is written in: graphs or scalars."""

    def __call__(self, name: str, *args: Any) -> Any: ...


Derivative: TypeAlias = Callable[..., Any]
"""`(calls, d, result, *operands)`: the cotangents of the operands, or of the only one."""
FLAT: Final = "flat"  # the derivative of a piecewise constant function
NUMBERS: Final[tuple[Kind, ...]] = ("float", "int", "uint")
INTEGERS: Final[tuple[Kind, ...]] = ("int", "uint")


@frozen(eq=False)
class ScalarRow:
    """A scalar operator; an interval is of real numbers, and nan is in none."""

    name: str
    array: Function
    """The meaning on numpy arrays; every function is total."""
    takes: tuple[Kind, ...] = ("float",)
    """Kinds of dtypes that scripts may apply it to; all operands have one dtype."""
    arity: int = 1
    gives: str = ""
    """The dtype of the result where it is not that of the first operand."""
    numbers: Mapping[Kind, Function] = field(factory=dict)
    """The meaning on Python's numbers before rounding; otherwise that of arrays is used."""
    is_exact: bool = False
    """Whether it has one right answer, so that arrays and numbers give the same bits."""
    is_direct: bool = False
    """Whether arrays of dtypes that are rounded by way of f32 need no detour."""
    rounds: bool = True
    """Whether a result must be rounded in floats that are computed in f32."""
    sign: str = ""
    """How scripts write it between its operands; otherwise it is called by its word."""
    binds: int = 0
    word: str = ""
    llvm: Mapping[Kind, str] = field(factory=dict)
    c: Mapping[Kind, str] = field(factory=dict)
    dialects: Mapping[str, Mapping[Kind, str]] = field(factory=dict)
    """Spellings by dialect where they differ from C."""
    cost: Cost = "function"
    range: Range | None = None
    """The interval of the result from those of the operands, or None if unknown."""
    derivative: Derivative | Literal["flat"] | None = None
    laws: frozenset[Law] = frozenset()
    """Associative as integers and bools; floats only up to rounding."""
    unit: Unit | None = None

    @property
    def is_bool(self) -> bool:
        """Whether it gives a bool."""
        return self.gives == "bool"

    def words(self, dialect: str) -> Mapping[Kind, str]:
        """The spelling in a dialect, by operand kind."""
        return self.llvm if dialect == "llvm" else self.dialects.get(dialect, self.c)


def every(text: str, kinds: tuple[Kind, ...] = ("float", "int", "uint", "bool")) -> dict[Kind, str]:
    """The same text for each kind."""
    return dict.fromkeys(kinds, text)


def laws(*given: Law) -> frozenset[Law]:
    """A set of laws."""
    return frozenset(given)
