"""Blocks inside of others, such as branches and clauses: what derivatives make of them, swept both
ways.

>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x = ex.Var(Name("x"), tensor((2,), "f32"))
>>> variables(ex.PTuple((ex.PVar(x), ex.PAny()))) == [x]
True
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from plica.ir.graph import expression as ex
from plica.ir.type import DataType, FuncType, TupleType, Type, type_of
from plica.rewrite.gradient.tangent import Part, Tangents, is_zero
from plica.rewrite.graph.unfold import wrap_in_lets


@attrs.define(eq=False)
class BranchSweep:
    """A block inside another, swept both ways."""

    lets: list[tuple[ex.Var, ex.Expr]]
    back: list[tuple[ex.Var, ex.Expr]]
    cotangents: dict[ex.Var, Part]
    calls: bool
    tangents: Tangents
    result: ex.Expr
    cotangent: ex.Var
    bound: Sequence[ex.Var]

    def left(self) -> list[ex.Var]:
        """The variables outside that cotangents flow to."""
        own = set(self.bound)
        found = self.cotangents.items()
        return [var for var, part in found if var not in own and not is_zero(part)]

    def reaches_bound(self) -> bool:
        """Whether a cotangent flows to a variable bound by the block's pattern."""
        return any(not is_zero(self.cotangents.get(var)) for var in self.bound)

    def pullback(self, takers: Sequence[ex.Var]) -> FuncType:
        """The type of the pullback to some variables."""
        of = self.tangents.of
        assert self.cotangent.type is not None
        every = TupleType(tuple([of(type_of(taker)) for taker in takers]))
        return FuncType((), (), (self.cotangent.type,), every)

    def written(self, takers: Sequence[ex.Var], first: ex.Expr | None = None) -> ex.Expr:
        """The block: its value, and the pullback to some variables, of which `first` is known."""
        body = wrap_in_lets(self.back, self._parts(takers, first))
        pull = ex.Function((), (), (self.cotangent,), self.pullback(takers).ret, body)
        return wrap_in_lets(self.lets, ex.Tuple((self.result, pull)))

    def pulled(self, takers: Sequence[ex.Var], first: ex.Expr | None = None) -> ex.Expr:
        """The pullback's result, where its cotangent has a value: with the block inlined."""
        return wrap_in_lets([*self.lets, *self.back], self._parts(takers, first))

    def _parts(self, takers: Sequence[ex.Var], first: ex.Expr | None) -> ex.Expr:
        tangents, found = self.tangents, self.cotangents
        parts = [
            tangents.whole(tangents.of(type_of(taker)), found.get(taker), taker) for taker in takers
        ]
        return ex.Tuple((*([] if first is None else [first]), *parts[0 if first is None else 1 :]))

    def of_pattern(self, pattern: ex.Pattern, of: Type) -> ex.Expr:
        """The cotangent of a matched value, from those of the pattern's variables."""
        tangents, found = self.tangents, self.cotangents
        match pattern, of:
            case ex.PVar(var), _:
                return tangents.whole(of, found.get(var), var)
            case ex.PTuple(items), TupleType(types) if types:
                pairs = zip(items, types, strict=True)
                return ex.Tuple(tuple([self.of_pattern(item, type) for item, type in pairs]))
            case ex.PConstructor(constructor, items), DataType():
                way, fields = tangents.constructor(of, constructor.index + 1)
                pairs = zip(items, fields, strict=True)
                every = tuple([self.of_pattern(item, field) for item, field in pairs])
                return ex.Call(way, every, of.args)
        return tangents.whole(of, None, ex.Tuple(()))


def variables(pattern: ex.Pattern) -> list[ex.Var]:
    """The variables that a pattern binds, in order."""
    found: list[ex.Var] = []
    stack = [pattern]
    while stack:
        match stack.pop():
            case ex.PVar(var):
                found.append(var)
            case ex.PConstructor(_, items) | ex.PTuple(items):
                stack.extend(reversed(items))
    return found
