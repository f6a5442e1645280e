"""Dialect: how one target writes types, literals, operators, memory and loops; a row each.

The folds of this folder walk over kernels and scalars and ask the dialect for every word.  All
targets whose code is text are such tables of one shape (`plica.codegen.c.dialect`, `.cuda.dialect`,
`.llvm.dialect`), so that what one writes for a thing stands beside what another does.  Those with
braces share most rows: they are what a row is unless it says otherwise.

>>> plain = Dialect("plain", {"i32": "int", "f32": "float"})
>>> plain.register(f32), plain.literal(0.5, f32), plain.literal(-1, i32)
('float', '0.5f', '-1')
>>> plain.loop.format(type="int", name="i", extent="4")
'for (int i = 0; i < 4; ++i)'

What an operator asks of the place it stands in is an `OperatorPlace`; what a dialect's own
operators ask beyond that is for the target to say (`P`).
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

Way = Literal["pack", "unpack", "round"]
"""From a value to its code in memory, back, and both."""


class OperatorPlace(Protocol):
    """Where an operator stands: what it may call, and what is known there."""

    @property
    def dialect(self) -> Dialect[Any]:  # Any: of places such as this one
        """The words of the target."""

    def converted(self, way: Way, value: str, of: DType) -> str:
        """A value of a dtype that has no register of its own, by a helper."""

    def divides_naturals(self, node: FloorDiv | FloorMod) -> bool:
        """Whether neither side of a quotient is negative, nor the right one 0."""


P = TypeVar("P")
"""The places in which a dialect's operators stand."""

SpecialOperator: TypeAlias = Callable[[Scalar, DType, Sequence[str], P], "str | None"]
"""The value of an operator of a dtype on those of its operands; None where the row's word says."""


def _no_words(word: str, row: ScalarRow, of: DType, operands: Sequence[str], place: P) -> str:
    raise CompilerBug(f"There are no words for {row.name} of {of}.")


def _itself(value: str, of: DType, place: P) -> str:
    return value


def _not_zero(value: str, of: DType, place: P) -> str:
    return f"({value} != 0)"


def _named(helper: str, dtypes: Sequence[DType], types: Sequence[str]) -> tuple[str, str]:
    """A helper that has a name for each dtype."""
    name = "_".join([helper, *[each.name for each in dtypes]])
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
    """The type of a value, by the name of its dtype; of what is computed in another, that one's."""
    elements: Mapping[str, str] = field(factory=dict)
    """The type of an element in memory, where that is another."""
    lanes: str = ""
    """The type of several lanes of a type, where there is one."""
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
    """The lesser (`min`) or greater (`max`) of two integers, by dtype; where there is no function
    for it, nothing."""
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
    """What waits for all threads that share memory; none where there is one thread."""
    failure: str = ""
    """What notes that an index was outside; none where every index is taken to be inside."""
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
        """A value as it is written, or in every of a given number of lanes."""
        if of is bool_:
            text = "true" if value else "false"
        else:
            text = self.real(value, of) if of.is_float else self.integer(int(value), of)
        return self.splat.format(type=self.register(of), text=text) if lanes else text
