"""Patterns that together cover a type, and none of which is in vain."""

from __future__ import annotations

from plica.ir.generate.builder import Builder, fields_of
from plica.ir.graph.expression import PAny, Pattern, PConstructor, PTuple, PVar, Var
from plica.ir.type import DataType, TupleType, Type


def cover(builder: Builder, type: Type, depth: int = 2) -> list[Pattern]:
    """Patterns for a total match: a partition of the values, or some of it and a last clause."""
    if depth == 0 or not isinstance(type, DataType | TupleType) or builder.chance(3):
        return [catch_all(builder, type)]
    return split(builder, type, depth)


def split(builder: Builder, type: DataType | TupleType, depth: int = 2) -> list[Pattern]:
    """As `cover`, looking inside the value at least once."""
    found: list[Pattern] = []
    if isinstance(type, DataType):
        for each in builder.constructors_of(type):
            for items in _product(builder, fields_of(each, type), depth):
                found.append(PConstructor(each, items))
    else:
        found = [PTuple(items) for items in _product(builder, type.items, depth)]
    if len(found) > 1 and builder.chance(3):
        kept = builder.count(1, len(found) - 1)
        return [*found[:kept], catch_all(builder, type)]
    return found


def catch_all(builder: Builder, type: Type) -> Pattern:
    """A pattern that fits anything: a name, or none."""
    return PAny() if builder.chance(3) else PVar(builder.var(type))


def variables(pattern: Pattern) -> list[Var]:
    """The variables a pattern binds, in order."""
    match pattern:
        case PVar(var):
            return [var]
        case PConstructor(_, items) | PTuple(items):
            return [var for item in items for var in variables(item)]
        case _:
            return []


def _product(builder: Builder, types: tuple[Type, ...], depth: int) -> list[tuple[Pattern, ...]]:
    """Patterns for each case: one field is matched further, the others are bound whole."""
    deep = [i for i, each in enumerate(types) if isinstance(each, DataType | TupleType)]
    where = builder.choose(deep or range(len(types))) if types else 0
    cases = cover(builder, types[where], depth - 1) if types else [PAny()]
    made: list[tuple[Pattern, ...]] = []
    for case in cases:
        items = [case if i == where else catch_all(builder, each) for i, each in enumerate(types)]
        made.append(tuple(items))
    return made
