"""Numbers among attributes and constants: what guards and demands say of them, and operators that
take them as operands.

A number that a demand speaks of is written so that the demand holds whatever the unknown number is:
one above zero as `select(0 < n, n, 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from plica.core import Term, post_order
from plica.ir.loop.scalar import Eq, Le, Lit, Lt, Max, Min, Mul, Scalar, Select, dtype_of
from plica.ir.op.elementwise import call
from plica.ir.type import DType
from plica.rewrite.packs.canonical import bound, is_plain, is_zero
from plica.rewrite.pattern import Derived, Hole
from plica.rewrite.prove.open_shape import NOWHERE
from plica.rewrite.prove.open_tensor import OpenTensor, Unprovable
from plica.rewrite.prove.rule_facts import RuleFacts

Meaning: TypeAlias = Callable[[list[Scalar]], Scalar]


def leaky(x: Scalar, alpha: Scalar) -> Scalar:
    """The scalar function of `nn.leaky_relu`."""
    return Select(Lt(x, Lit(0, dtype_of(x))), Mul(x, alpha), x)


def clipped(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """The scalar function of `clip`, where no bound is one that changes nothing."""
    return Min(Max(x, low), high)


PARAMETRIC: Final[Mapping[str, tuple[Callable[..., Scalar], tuple[str, ...]]]] = {
    "nn.leaky_relu": (leaky, ("alpha",)),
    "clip": (clipped, ("min", "max")),
}
"""Operators of one operand and of attributes that are unknown numbers, by their attributes."""


def with_parameters(
    reading: RuleFacts, name: str, given: Mapping[str, Any], dtype: DType
) -> Meaning:
    """The scalar function of an operator with unknown numbers among its attributes."""
    function, names = PARAMETRIC[name]
    numbers = [parameter(reading, given[each], dtype, each) for each in names]
    return lambda elements: function(*elements, *numbers)


def parameter(reading: RuleFacts, value: Any, dtype: DType, attribute: str) -> Scalar:
    """A number among attributes; no bound is the least or the greatest number."""
    match value:
        case None:
            return extreme(dtype, least=attribute == "min")
        case Hole(name):
            if value.constraint.when is is_zero:
                return Lit(0, dtype)
            unknown = reading.atom(("number", name, dtype), dtype, name)
            return plain(unknown) if value.constraint.when is is_plain else unknown
        case Derived(function, (Hole(name),)) if function is bound and name in reading.plain:
            return demanded(reading, name, reading.atom(("hole", name, NOWHERE), dtype, name))
        case int() | float():
            return Lit(value, dtype)
    raise Unprovable("a number among attributes that is not modelled")


def extreme(dtype: DType, *, least: bool) -> Lit:
    """The least number of a dtype, or the greatest."""
    if dtype.is_float:
        return Lit(float("-inf" if least else "inf"), dtype)
    return Lit(dtype.bounds[0 if least else 1], dtype)


def plain(number: Scalar) -> Scalar:
    """An unknown number that is neither nan nor -0.0."""
    dtype = dtype_of(number)
    if not dtype.is_float:
        return number
    zero = Lit(0, dtype)
    return Select(Eq(number, zero), zero, Select(call("isnan", number), zero, number))


def learn_bounds(reading: RuleFacts, right: Term) -> None:
    """Constants of which the right side takes the number are plain bounds."""
    for node in post_order(right):
        if isinstance(node, Derived) and node.function is bound:
            reading.plain |= {arg.name for arg in node.args if isinstance(arg, Hole)}


def demanded(reading: RuleFacts, name: str, found: Scalar) -> Scalar:
    """An element of what fills a hole, as its demands and the guard say that it is."""
    dtype = dtype_of(found)
    if name in reading.plain:
        found = plain(found)
    if name in reading.positive:
        return Select(Lt(Lit(0, dtype), found), found, Lit(1, dtype))
    if (other := reading.not_above.get(name)) is not None:
        above = demanded(reading, other, reading.atom(("hole", other, NOWHERE), dtype, other))
        return Select(Le(found, above), found, above)
    return found


def clipped_twice_of(reading: RuleFacts, node: Derived) -> OpenTensor:
    """A tensor clipped to some bounds and then to others: the first of those are clipped, too."""
    part, *bounds = node.args
    of = reading.memo[part]
    low, high, less, more = (
        parameter(reading, each, of.dtype, name)
        for each, name in zip(bounds, ("min", "max") * 2, strict=True)
    )
    least, most = (clipped(scalar, less, more) for scalar in (Min(low, high), high))
    return OpenTensor(of.dtype, of.shape, lambda index: clipped(of.at(index), least, most))
