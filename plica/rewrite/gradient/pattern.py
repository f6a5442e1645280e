"""Patterns where derivatives are taken: what they bind, and names for all that has a cotangent.

>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> variables(PTuple((PVar(x), PAny()))) == [x]
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.ir.graph.expression import PAny, Pattern, PConstructor, PTuple, PVar, Var
from plica.ir.type.term import DataType, TupleType, Type

if TYPE_CHECKING:
    from plica.rewrite.gradient.reverse import Reverse


def variables(pattern: Pattern) -> list[Var]:
    """The variables that a pattern binds, in order."""
    found: list[Var] = []
    stack = [pattern]
    while stack:
        match stack.pop():
            case PVar(var):
                found.append(var)
            case PConstructor(_, items) | PTuple(items):
                stack.extend(reversed(items))
    return found


def named(pattern: Pattern, of: Type, program: Reverse) -> Pattern:
    """A pattern in which what has a cotangent has a name, so that its zero can be made."""
    if isinstance(pattern, PAny):
        return PVar(program.fresh("x", of))
    if not program.tangents.is_active(of):
        return pattern
    match pattern, of:
        case PTuple(items), TupleType(types):
            pairs = zip(items, types, strict=True)
            return PTuple(tuple([named(item, type, program) for item, type in pairs]))
        case PConstructor(constructor, items), DataType():
            every = zip(items, program.fields(of, constructor), strict=True)
            return PConstructor(
                constructor, tuple([named(item, type, program) for item, type in every])
            )
    return pattern
