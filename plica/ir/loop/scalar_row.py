"""Rows of scalar operators: all that is known of one, in one place.

A row says what an operator takes and gives, what it means on arrays and on single numbers, how
scripts, LLVM and C-like languages write it, what it costs, its interval, its derivative and its
laws.  The rows stand in `plica.ir.loop.scalar_table`; everything else asks them.  The classes of
`plica.ir.loop.scalar` (`Add`, `Mul`, …) are patterns; intrinsics have a name and no class.

How code is written, by the kind of the operands:

    LLVM    "fadd"          an instruction on the operands
            "@llvm.sqrt"    an intrinsic of LLVM, whose name ends with its type
            "@exp"          a function of the C library (a formula of ours where there is one)
            ""              the first operand itself
    C       "{0} + {1}"     a template; {e} is the `f` after functions of f32, {b} the bits, {m} a
                            mask of them
            "@p_abs"        a helper of the target's prelude, by its dtype

What no such word says is a special case of the emitter, under the name of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from attrs import field, frozen

from plica.runtime.element import Kind

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
"""`(calls, d, result, *operands)`: the cotangent of each operand, one of them alone."""

FLAT: Final = "flat"
"""The derivative of what is constant almost everywhere."""

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
    """What a dialect writes otherwise than C, by its name."""
    cost: Cost = "function"
    range: Range | None = None
    """The interval of the result from those of the operands, None where it says nothing."""
    derivative: Derivative | Literal["flat"] | None = None
    laws: frozenset[Law] = frozenset()
    """Associative as integers and bools; floats only up to rounding."""
    unit: Unit | None = None

    @property
    def is_bool(self) -> bool:
        """Whether it gives a bool."""
        return self.gives == "bool"

    def words(self, dialect: str) -> Mapping[Kind, str]:
        """How a dialect writes it, by the kind of what it takes."""
        return self.llvm if dialect == "llvm" else self.dialects.get(dialect, self.c)


def every(text: str, kinds: tuple[Kind, ...] = ("float", "int", "uint", "bool")) -> dict[Kind, str]:
    """The same text for each kind."""
    return dict.fromkeys(kinds, text)


def laws(*given: Law) -> frozenset[Law]:
    """A set of laws."""
    return frozenset(given)
