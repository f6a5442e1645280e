"""Dialect: how one target writes types, literals, operators, memory and loops; a row each.

The folds of this package walk over kernels and scalars and look up every word in the dialect. All
text targets are tables of one shape (`plica.codegen.c.dialect`, `.cuda.dialect`, `.llvm.dialect`),
so spellings can be compared side by side. C-like ones inherit most rows.

>>> plain = Dialect("plain", {"i32": "int", "f32": "float"})
>>> plain.register(f32), plain.literal(0.5, f32), plain.literal(-1, i32)
('float', '0.5f', '-1')
>>> plain.loop.format(type="int", name="i", extent="4")
'for (int i = 0; i < 4; ++i)'

An operator's requirements on its context are an `OperatorPlace`; further requirements of a
dialect's own operators are defined by the target (`P`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from attrs import field, frozen

from plica.core import CompilerBug
from plica.ir.loop.scalar import FloorDiv, FloorMod, Scalar
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type import DType, bool_, f32, f64, i32

__all__ = ["Dialect", "OperatorPlace", "SpecialOperator", "Way", "f32", "i32"]

Way = Literal["pack", "unpack", "round"]  # from a value to its code in memory, back, and both


class OperatorPlace(Protocol):
    """The context of an operator: functions it may call, and known facts."""

    @property
    def dialect(self) -> Dialect[Any]:  # Any: of places such as this one
        """The words of the target."""

    def converted(self, way: Way, value: str, of: DType) -> str:
        """Converts a value of a dtype without registers, by a helper."""

    def divides_naturals(self, node: FloorDiv | FloorMod) -> bool:
        """Whether neither side of a quotient is negative, nor the right one 0."""


P = TypeVar("P")  # the places in which a dialect's operators stand

SpecialOperator: TypeAlias = Callable[[Scalar, DType, Sequence[str], P], "str | None"]
"""The expression of an operator for operand expressions, or None for the row's word."""


def _no_words(word: str, row: ScalarRow, of: DType, operands: Sequence[str], place: P) -> str:
    raise CompilerBug(f"There are no words for {row.name} of {of}.")


def _itself(value: str, of: DType, place: P) -> str:
    return value


def _not_zero(value: str, of: DType, place: P) -> str:
    return f"({value} != 0)"


def _named(helper: str, dtypes: Sequence[DType], types: Sequence[str]) -> tuple[str, str]:
    """A helper that has a name for each dtype."""
    name = "_".join([helper, *[dtype.name for dtype in dtypes]])
    return name, name


def _bits(bits: int, of: DType) -> str:
    raise CompilerBug(f"A {of} of the bits {bits:#x} is no decimal.")


_SUFFIXES: Final = {"i64": "LL", "u64": "ULL", "u32": "U"}


def suffixed(value: int, of: DType) -> str:
    """An integer whose end says its type."""
    low = of.bounds[0]
    if value == low and low < 0 and of.bits >= 32:  # its size is no value of the type
        return f"({suffixed(low + 1, of)} - 1)"
    return f"{value}{_SUFFIXES.get(of.name, '')}"


def decimal(value: float, of: DType, special: Callable[[int, DType], str] = _bits) -> str:
    """A float as a decimal; what none says is given by its bits."""
    if of is f64:
        bits = int.from_bytes(struct.pack("<d", value), "little")
        return repr(float(value)) if isfinite(value) else special(bits, f64)
    single = np.float32(value)
    if np.isfinite(single):
        return f"{single!s}f"
    return special(int(single.view(np.uint32)), f32)


@frozen(eq=False)
class Dialect(Generic[P]):
    """The words of a target; texts in braces are templates."""

    name: str
    # --- types and literals
    registers: Mapping[str, str]
    """The type of a value by dtype; for emulated dtypes, the type used for computation."""
    elements: Mapping[str, str] = field(factory=dict)
    """The type of an element in memory, where that is another."""
    lanes: str = ""
    """The vector type of a type and lane count, if any."""
    splat: str = ""
    """A literal in every lane."""
    integer: Callable[[int, DType], str] = suffixed
    real: Callable[[float, DType], str] = decimal
    reserved: frozenset[str] = frozenset()
    """Words that cannot be names."""
    # --- operators and helpers
    written: Callable[[str, ScalarRow, DType, Sequence[str], P], str] = _no_words
    """An operator on its operands, by the word of its row for their dtype."""
    specials: Mapping[str, SpecialOperator[P]] = field(factory=dict)
    """What no word says, by the name of the operator."""
    products: Mapping[str, str] = field(factory=dict)
    """A product of floats that is rounded by itself, by dtype; where `*` always is, nothing."""
    helper: Callable[[str, Sequence[DType], Sequence[str]], tuple[str, str]] = _named
    """A helper for some dtypes (and types): the name of its text, and how it is called."""
    conversion: Callable[[str, str], str] = "({0})({1})".format
    """A value as one of a type."""
    extremes: Mapping[str, str] = field(factory=dict)
    """The integer minimum (`min`) or maximum (`max`) functions by dtype; empty if there are
    none."""
    # --- memory
    element: str = "{buffer}[{at}]"
    allocation: str = "{type} {name}[{count}];"
    stored: Callable[[str, DType, P], str] = _itself
    """A value as an element of another type."""
    loaded: Callable[[str, DType, P], str] = _not_zero
    """An element of another type as a value."""
    # --- statements
    value: str = "const {type} {name} = {text};"
    variable: str = "{type} {name};"
    loop: str = "for ({type} {name} = 0; {name} < {extent}; ++{name})"
    unroll: str = ""
    """A line before a loop that is to be unrolled."""
    barrier: str = ""
    """The barrier of threads that share memory; empty for single threads."""
    failure: str = ""
    """The code that records an index out of bounds; empty if indices are assumed in bounds."""
    inside: str = "(unsigned long long)({at}) < {count}ULL"
    """Whether an index is not negative and below a number."""

    def register(self, of: DType, lanes: int = 0) -> str:
        """The type of a value, or of a given number of lanes of it."""
        kind = self.registers.get(of.name) or self.registers[of.computed.name]
        return self.lanes.format(type=kind, lanes=lanes) if lanes else kind

    def memory(self, of: DType, lanes: int = 0) -> str:
        """The type of an element of a buffer, or of this many."""
        if of.is_coded:
            kind = self.registers[f"u{8 * of.bytes}"]
        else:
            kind = self.elements.get(of.name) or self.registers[of.name]
        return self.lanes.format(type=kind, lanes=lanes) if lanes else kind

    def cast(self, of: DType, value: str) -> str:
        """A value as one of a dtype."""
        return self.conversion(self.register(of), value)

    def literal(self, value: bool | int | float, of: DType, lanes: int = 0) -> str:
        """A literal, or a vector of equal literals."""
        if of is bool_:
            text = "true" if value else "false"
        else:
            text = self.real(value, of) if of.is_float else self.integer(int(value), of)
        return self.splat.format(type=self.register(of), text=text) if lanes else text
