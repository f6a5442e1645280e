"""What right sides derive from matched values: terms, shapes and numbers, as the prover reads them.

The functions of axes are read where reductions and transposes are.
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar, Select
from plica.ir.type import DType, bool_
from plica.rewrite.instantiate import is_value
from plica.rewrite.packs.axes import as_shape, without
from plica.rewrite.packs.canonical import one_number
from plica.rewrite.packs.composite import dims, number
from plica.rewrite.packs.motion import turned_back
from plica.rewrite.packs.rearrange import larger, smaller
from plica.rewrite.pattern import Derived, Hole
from plica.rewrite.prove.open_shape import NOWHERE, SCALAR, NamedShape, OpenIndex, OpenShape
from plica.rewrite.prove.open_tensor import OpenTensor, Unprovable, constant
from plica.rewrite.prove.rule_facts import RuleFacts

TRIANGLES: Final = {"tril": smaller, "triu": larger}
"""Operators, and what two of their diagonals are together."""


def read_derived(reading: RuleFacts, node: Derived) -> OpenTensor | None:
    """A part of a right side as a tensor, None where it is none: a setting."""
    match node.args:
        case (Expr() as part, wanted) if node.function is as_shape:
            return reading.reshape(reading.memo[part], shape_of(reading, wanted))
        case (Hole(name),) if node.function is one_number and name in reading.splats:
            return one_number_of(reading, name)
        case (Hole(name), order) if node.function is turned_back and (
            reading.turned.get(name) is order
        ):
            return turned_back_of(reading, name)
        case (value, dtype) if node.function is number:
            return number_of(reading, value, dtype)
    return None


def shape_of(reading: RuleFacts, given: Any) -> OpenShape:
    """The shape that an attribute is, or that is derived from attributes."""
    match given:
        case Hole(name):
            return reading.facts.named(NamedShape(name))
        case Derived(function, (part,)) if function is dims:
            return reading.memo[part].shape
        case Derived(function, (part, Hole(name), axes, kept)) if function is without:
            small, wide = reading.memo[part].shape, reading.facts.named(NamedShape(name))
            known = reading.facts.created.get((wide, (reading.facts.axes(axes, wide),), small))
            if known is not None and isinstance(flag := reading.flag(kept), bool):
                return small if flag else known
    raise Unprovable("a shape of known rank")


def number_of(reading: RuleFacts, value: Any, dtype: Any) -> OpenTensor:
    """A scalar of a number; the value of an attribute is unknown."""
    dtype = reading.value(dtype)
    if not isinstance(dtype, DType):
        raise Unprovable("a number of an unknown dtype")
    if isinstance(value, Hole):
        unknown = reading.atom(("number", value.name, dtype), dtype, value.name)
        return OpenTensor(dtype, SCALAR, lambda _: unknown)
    value = bool(value) if dtype is bool_ else value
    if not is_value(value, dtype):
        raise Unprovable(f"{value!r} may be no value of {dtype}")
    return constant(value, dtype)


def one_number_of(reading: RuleFacts, name: str) -> OpenTensor:
    """The value that a constant has everywhere."""
    dtype = reading.dtype_of(name)
    return OpenTensor(dtype, SCALAR, lambda _: reading.atom(("hole", name), dtype, name))


def shape_before(name: str) -> NamedShape:
    """The shape of a constant before a transpose."""
    return NamedShape(f"{name} turned back")


def turned_back_of(reading: RuleFacts, name: str) -> OpenTensor:
    """A constant before a transpose, with as many axes as that has."""
    dtype = reading.dtype_of(name)
    return OpenTensor(
        dtype, shape_before(name), lambda index: reading.atom(("hole", name, index), dtype, name)
    )


def triangle_of(reading: RuleFacts, of: OpenTensor, name: str, diagonal: Any) -> OpenTensor:
    """A triangle of matrices: elsewhere there are zeros; the smaller of two is where both are."""
    zero = constant(bool(0) if of.dtype is bool_ else 0, of.dtype).at(NOWHERE)
    diagonals = (diagonal,)
    if isinstance(diagonal, Derived):
        if TRIANGLES[name] is not diagonal.function:
            raise Unprovable(f"{diagonal.function.name} is not modelled for {name}")
        diagonals = diagonal.args
    reading.legal((name, of.shape), f"{name} of another shape")

    def at(index: OpenIndex) -> Scalar:
        value = of.at(index)
        for each in diagonals:
            inside = reading.atom((name, each, index, of.shape), bool_, "inside")
            value = Select(inside, value, zero)
        return value

    return OpenTensor(of.dtype, of.shape, at)
