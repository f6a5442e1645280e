"""Dialect: how one target writes types, literals, operators, memory and loops; a row each.

The folds of this folder walk over kernels and scalars and ask the dialect for every word.  Targets
with braces (CUDA, C, …) are such tables, most of whose rows are the same: `evolve` one to get the
next.  LLVM's text has registers for expressions; it fills the rows of the folds themselves.

>>> plain = Dialect("plain", {"i32": "int", "f32": "float"})
>>> plain.register(f32), plain.literal(0.5, f32), plain.literal(-1, i32)
('float', '0.5f', '-1')
>>> plain.loop.format(type="int", name="i", extent="4")
'for (int i = 0; i < 4; ++i)'

What an operator asks of the place it stands in is a `OperatorPlace`; the row `operator` answers
with the
text of the operator on the texts of its operands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Final, Protocol, TypeAlias

import numpy as np
from attrs import field, frozen

from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import Scalar
from plica.ir.type.dtype import DType, bool_, f32, f64, i32
from plica.runtime.element import Kind

__all__ = ["Dialect", "Operator", "OperatorPlace", "f32", "i32"]


class OperatorPlace(Protocol):
    """Where an operator stands: what it may call, and what is known there."""

    @property
    def dialect(self) -> Dialect:
        """The words of the target."""

    def call(self, helper: str, dtypes: Sequence[DType], args: Sequence[str]) -> str:
        """The call of a helper for some dtypes, which is then written out."""

    def is_natural(self, node: Scalar) -> bool:
        """Whether an index term is shown not to be negative."""

    def is_read(self, node: Scalar) -> bool:
        """Whether a term depends on memory, so that an integer may be any, and wraps around."""

    def is_contracted(self, node: Scalar) -> bool:
        """Whether a product may be rounded together with the sum it is added to."""


Operator: TypeAlias = Callable[[Scalar, Sequence[str], OperatorPlace], str]
"""The text of a scalar operator on the texts of its operands, at a site."""


def _none(node: Scalar, operands: Sequence[str], site: OperatorPlace) -> str:
    raise CompilerBug(f"The dialect {site.dialect.name} has no operators.")


def _named(helper: str, dtypes: Sequence[DType], types: Sequence[str]) -> tuple[str, str]:
    """A helper that has a name for each dtype."""
    name = "_".join([helper, *[each.name for each in dtypes]])
    return name, name


def _compared(word: str, of: DType, sides: Sequence[str]) -> str:
    """The lesser (`min`) or greater of two integers, by a comparison."""
    one, two = sides
    if one == two:
        return one
    return f"({one} {'<' if word == 'min' else '>'} {two} ? {one} : {two})"


def _no_helpers(used: Iterable[str]) -> str:
    return ""


def _bits(bits: int, of: DType) -> str:
    raise CompilerBug(f"A {of} of the bits {bits:#x} is no decimal.")


_SUFFIXES: Final = {"i64": "LL", "u64": "ULL", "u32": "U"}


@frozen(eq=False)
class Dialect:
    """The words of a target; texts in braces are templates."""

    name: str
    # --- types and literals
    registers: Mapping[str, str]
    """The type of a value, by the name of its dtype; of what is computed in another, that one's."""
    elements: Mapping[str, str] = field(factory=dict)
    """The type of an element in memory, where that is another."""
    suffixes: Mapping[str, str] = field(factory=lambda: _SUFFIXES)
    """How an integer literal of a dtype ends."""
    special: Callable[[int, DType], str] = _bits
    """A float that no decimal says, by its bits."""
    reserved: frozenset[str] = frozenset()
    """Words that cannot be names."""
    # --- operators and helpers
    operator: Operator = _none
    templates: Mapping[str, Mapping[Kind, str]] = field(factory=dict)
    """Operators that are written otherwise than their rows say, by name and kind."""
    products: Mapping[str, str] = field(factory=dict)
    """A product of floats that is rounded by itself, by dtype; where `*` always is, nothing."""
    helper: Callable[[str, Sequence[DType], Sequence[str]], tuple[str, str]] = _named
    """A helper for some dtypes (and types): the name of its text, and how it is called."""
    helpers: Callable[[Iterable[str]], str] = _no_helpers
    """The text of the helpers of these names, and of what they need, in a fixed order."""
    conversion: Callable[[str, str], str] = "({0})({1})".format
    """A value as one of a type."""
    extreme: Callable[[str, DType, Sequence[str]], str] = _compared
    """The lesser (`min`) or greater (`max`) of two integers."""
    # --- memory
    element: str = "{buffer}[{at}]"
    allocation: str = "{type} {name}[{count}];"
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

    def register(self, of: DType) -> str:
        """The type of a value."""
        return self.registers[of.computed.name]

    def memory(self, of: DType) -> str:
        """The type of an element of a buffer."""
        if of.is_coded:
            return self.registers[f"u{8 * of.bytes}"]
        return self.elements.get(of.name) or self.registers[of.name]

    def cast(self, of: DType, value: str) -> str:
        """A value as one of a dtype."""
        return self.conversion(self.register(of), value)

    def literal(self, value: bool | int | float, of: DType) -> str:
        """A value as it is written; what no decimal says is given by its bits."""
        if of is bool_:
            return "true" if value else "false"
        if not of.is_float:
            low = of.bounds[0]
            if value == low and low < 0 and of.bits >= 32:  # its size is no value of the type
                return f"({self.literal(low + 1, of)} - 1)"
            return f"{int(value)}{self.suffixes.get(of.name, '')}"
        if of is f64:
            bits = int.from_bytes(struct.pack("<d", value), "little")
            return repr(float(value)) if isfinite(value) else self.special(bits, f64)
        single = np.float32(value)
        if np.isfinite(single):
            return f"{single!s}f"
        return self.special(int(single.view(np.uint32)), f32)
