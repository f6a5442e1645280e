"""The known expressions with their types, dims and type variables, while a program grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from plica.core import Term, free_vars
from plica.ir.graph.expression import Expr, Let, Var
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import Type, TypeVar


@attrs.frozen
class KnownExpression:
    """An expression that may be used here, and its type."""

    expr: Expr
    type: Type


@attrs.define
class GenerationScope:
    """A place in a program: what may be used there, and the lets written there so far.

    An expression drawn twice from `pool` is shared in the result.
    """

    pool: list[KnownExpression]
    dims: tuple[ScalarVar, ...] = ()
    types: tuple[TypeVar, ...] = ()
    lets: list[tuple[Var, Expr]] = attrs.field(factory=list)

    def inner(
        self,
        variables: Iterable[Var] = (),
        dims: tuple[ScalarVar, ...] = (),
        types: tuple[TypeVar, ...] = (),
    ) -> GenerationScope:
        """A nested scope; shadowed variables are removed."""
        new = [KnownExpression(var, typed(var)) for var in variables]
        shadow = {expression.expr for expression in new}
        pool = self.pool
        if any(expression.expr in shadow for expression in pool):
            pool = [each for each in pool if free_vars(each.expr).isdisjoint(shadow)]
        return GenerationScope([*pool, *new], (*self.dims, *dims), (*self.types, *types))

    def add(self, expr: Expr, type: Type) -> KnownExpression:
        """Make an expression known."""
        known = KnownExpression(expr, type)
        self.pool.append(known)
        return known

    def of(self, type: Type) -> list[KnownExpression]:
        """The expressions of exactly this type."""
        return [expression for expression in self.pool if expression.type is type]

    def having(self, wanted: Callable[[Type], bool]) -> list[KnownExpression]:
        """The expressions whose type satisfies a predicate."""
        return [expression for expression in self.pool if wanted(expression.type)]

    def close(self, result: Expr) -> Expr:
        """The result inside the lets of this scope."""
        for var, value in reversed(self.lets):
            result = Let(var, value, result)
        return result


def typed(var: Var) -> Type:
    """The type of a variable that has one."""
    assert var.type is not None
    return var.type


def mentions(term: Term, variables: Iterable[Term]) -> bool:
    """Whether any of the variables is free in the term."""
    return not free_vars(term).isdisjoint(variables)
