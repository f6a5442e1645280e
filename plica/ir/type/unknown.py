"""Unknowns: placeholders for parts of a type yet to be inferred.

An unknown type is an `Unknown`; an unknown dim is a dim variable hinted `?`, which no program can
write; a number whose dtype its neighbours decide has a *weak* type, which is an unknown with a
range of values.

>>> from plica.ir.type.dtype import f16, u8
>>> from plica.ir.type.term import tensor
>>> weak(300).fits(u8), weak(300).fits(f16), weak(0.5).fits(i64)
(False, True, False)
>>> str(blanked(tensor((ty.dim_var(Name("?", 3)), 4), f32)))
'Tensor[("unknown", 4), f32]'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import attrs

from plica.core import Name, Term, all_of, free_vars, post_order, rebuild
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type import term as ty
from plica.ir.type.dim import from_polynomial, polynomial, quotient
from plica.ir.type.dtype import DType, f32, i64

Number: TypeAlias = bool | int | float

POISON: Final = ty.Unknown(Name("?error"))
"""The type of a node in error: it unifies with everything, so no follow-up errors occur."""


@attrs.frozen
class Weak:
    """What is known about a literal without a dtype: whether it is a float, and its range."""

    is_float: bool
    low: float
    high: float

    def joined(self, other: Weak) -> Weak:
        return Weak(
            self.is_float or other.is_float, min(self.low, other.low), max(self.high, other.high)
        )

    def default(self) -> DType:
        return f32 if self.is_float else i64

    def fits(self, dtype: DType) -> bool:
        """Whether every number met so far is a value of the dtype, up to rounding."""
        if dtype.is_float:
            limit = dtype.overflow  # past it a finite number would silently become infinite
            return -limit < self.low and self.high < limit
        if self.is_float or not dtype.is_integer:
            return False
        low, high = dtype.bounds
        return low <= self.low and self.high <= high

    def why_not(self, dtype: DType) -> str:
        """Why a number does not fit a dtype."""
        if self.is_float and not dtype.is_float:
            return f"A float literal does not convert to {dtype}: write an integer, or cast."
        if not dtype.is_float and not dtype.is_integer:
            return f"A number is no {dtype}."
        return f"The number {self.low if self.low < 0 else self.high} is outside {dtype}."


def weak(value: Number) -> Weak:
    """The weak type of a number; infinities and nan are values of every float dtype."""
    finite = value if abs(value) < float("inf") else 0  # also for nan
    return Weak(isinstance(value, float), finite, finite)


TYPES: Final = (ty.TensorType, ty.TupleType, ty.FuncType, ty.DataType, ty.TypeVar, ty.Unknown)


def is_open(variable: Term) -> bool:
    """Whether a dim variable is one that inference looks for."""
    return isinstance(variable, ScalarVar) and variable.name.hint == "?"


def unknowns(of: ty.Type) -> Iterator[Term]:
    """The unknown types and dims in a type, in order of occurrence, each once."""
    seen: set[Term] = set()
    stack: list[Term] = [of]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ty.Unknown) or is_open(node):
            yield node
        elif isinstance(node, ty.TensorType):
            stack.extend([dim for dim in reversed(node.shape) if dim.__class__ is not Lit])
        else:
            stack.extend(reversed(node._children))


def parts(of: ty.Type) -> list[Term]:
    """The types inside a type, itself included."""
    found: dict[Term, None] = {of: None}
    stack: list[Term] = [of]
    while stack:
        node = stack.pop()
        for kid in node._children if not isinstance(node, ty.TensorType) else ():
            if kid not in found:
                found[kid] = None
                stack.append(kid)
    return list(found)


def variables(of: Scalar) -> list[ScalarVar]:
    """The variables of a dim in order of occurrence."""
    if isinstance(of, Lit):
        return []
    return all_of(ScalarVar, of)


def rename_types(of: ty.Type, mapping: Mapping[Term, Term]) -> ty.Type:
    """A type with variables or unknowns replaced; unknowns are no variables of core."""
    memo: dict[Term, Term] = {}
    for node in post_order(of):
        term = mapping.get(node)
        memo[node] = (
            rebuild(node, tuple([memo[kid] for kid in node._children])) if term is None else term
        )
    result = memo[of]
    assert isinstance(result, TYPES)
    return result


def solved(zero: Scalar, unknown: ScalarVar) -> Scalar | None:
    """`unknown` from `zero == 0`, where it occurs once, linearly, and the division is exact."""
    rest = dict(polynomial(zero))
    factor = 0
    for key, (atoms, coefficient) in tuple(rest.items()):
        if atoms == (unknown,):
            factor = coefficient
            del rest[key]
        elif any(unknown in free_vars(atom) for atom in atoms):
            return None
    if factor == 0:
        return None
    return quotient(from_polynomial(rest), Lit(-factor, i64))


def is_linear(zero: Scalar, unknown: ScalarVar) -> bool:
    """Whether an unknown occurs only in a linear term of its own."""
    return all(
        atoms == (unknown,) or not any(unknown in free_vars(atom) for atom in atoms)
        for atoms, _ in polynomial(zero).values()
    )


def blanked(of: ty.Type) -> ty.Type:
    """A type for display: unknown parts are shown as `unknown`."""
    blank: dict[Term, Term] = {}
    for unknown in unknowns(of):
        blank[unknown] = ty.dim_var("unknown") if is_open(unknown) else ty.Unknown(Name("unknown"))
    return rename_types(of, blank) if blank else of


def shown(of: Scalar) -> str:
    """A dim as people write it."""
    text = str(blanked(ty.TensorType((of,), f32)))
    return text.removeprefix("Tensor[(").removesuffix(",), f32]").strip('"')
