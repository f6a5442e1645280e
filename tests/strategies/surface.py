"""The same program as a person writes it: without what inference finds again.

`infer(surface(m))` must have the digest of `m`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core.binding import free_vars, variables_of
from plica.core.fold import fold, post_order
from plica.core.name import Name
from plica.core.term import Term, rebuild
from plica.ir.generate.choice import between
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Const,
    Constructor,
    Expr,
    Function,
    Let,
    Literal,
    Var,
)  # fmt: skip
from plica.ir.graph.module import Module
from plica.ir.type.term import FuncType, Type

WEAK: Final = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal", "greater",
     "greater_equal", "equal", "not_equal")
)  # fmt: skip
"""Operators whose arguments share a dtype, so that a number beside a tensor has the tensor's."""


@st.composite
def surface(draw: DrawFn, module: Module) -> Module:
    """The module with some types erased, and some constants as bare numbers."""

    def some() -> bool:
        return draw(between(0, 1)) == 1

    untyped = {var for var in _erasable(module) if some()}

    def step(node: Term, kids: tuple[Term, ...]) -> Term:
        new = rebuild(node, kids)
        match node, new:
            case Var() as old, Var(name, _) if old in untyped:
                return Var(name, None)
            case Call(callee, _, types), Call(head, args, _) if _decided(callee, types):
                return Call(head, args, () if some() else new.types)
            case Function() as old, Function(dims, types, params, _, body, attrs):
                if _is_found(old, module) and some():
                    return Function(dims, types, params, None, body, attrs)
            case Apply(op, _, _), Apply(_, args, attrs) if op in WEAK:
                return Apply(op, _weakened(args, some), attrs)
            case _:
                pass
        return new

    result = fold(step, module)
    assert isinstance(result, Module)
    return result


def _erasable(module: Module) -> list[Var]:
    """Variables whose type follows from elsewhere, and whose name no other variable has."""
    namesakes: dict[Name, set[Term]] = {}
    found: dict[Var, None] = {}
    params: set[Var] = set()
    for node in post_order(module):
        match node:
            case Var(name, _):
                namesakes.setdefault(name, set()).add(node)
            case Let(var, _, _):
                found[var] = None
            case Clause(pattern, _):
                found.update((var, None) for var in variables_of(pattern) if isinstance(var, Var))
            case Module(names, _, _):
                found.update((name, None) for name in names if isinstance(name, Var))
            case Function():
                params.update(node.params)
            case _:
                pass
    named = set(module.names)
    return [
        var
        for var in found
        if len(namesakes[var.name]) == 1
        and var not in params
        and (var in named or not _is_polymorphic(var.type))
    ]


def _is_polymorphic(type: Type | None) -> bool:
    """Whether a type has a polymorphic function in it: inference finds none where it sees none."""
    parts = () if type is None else post_order(type)
    return any(isinstance(each, FuncType) and (each.types or each.dims) for each in parts)


def _decided(callee: Expr, types: tuple[Type, ...]) -> bool:
    """Whether the arguments of a call decide all type arguments.

    A polymorphic function is passed at one of its types unless the call says otherwise.
    """
    if not types or any(
        isinstance(each, FuncType) and (each.dims or each.types)
        for given in types
        for each in post_order(given)
    ):
        return False
    type: Type | None = callee.type if isinstance(callee, Var | Constructor) else None
    if not isinstance(type, FuncType):
        return False
    mentioned = frozenset[Any]().union(*(free_vars(param) for param in type.params))
    return mentioned.issuperset(type.types)


def _is_found(function: Function, module: Module) -> bool:
    """Whether what the function returns follows from its body: it calls no definition."""
    return (
        not function.types
        and not _is_polymorphic(function.ret)
        and any(value is function for value in module.values)
        and free_vars(function).isdisjoint([each for each in module.names if type(each) is Var])
    )


def _weakened(args: tuple[Expr, ...], some: Callable[[], bool]) -> tuple[Expr, ...]:
    """At most one of two arguments as a bare number."""
    for i, each in enumerate(args):
        number = _number(each)
        if number is not None and not isinstance(args[1 - i], Const | Literal) and some():
            return (*args[:i], number, *args[i + 1 :])
    return args


def _number(expr: Expr) -> Literal | None:
    """The number that becomes this constant again, bit for bit."""
    if not isinstance(expr, Const) or expr.shape != ():
        return None
    value = expr.numpy().item()
    again = np.asarray(value, expr.dtype.numpy).tobytes()
    return Literal(value) if again == expr.data else None
