"""First-order modules with static shapes: the input of `compile`."""

from __future__ import annotations

from functools import partial
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.generate import growth
from plica.ir.generate.builder import Builder
from plica.ir.generate.operation import operation
from plica.ir.generate.scope import GenerationScope, KnownExpression, typed
from plica.ir.generate.value import dtypes, small_shapes
from plica.ir.graph.expression import Call, Expr, Function, If, Tuple, Var
from plica.ir.graph.module import Defined, Definition, Module, module
from plica.ir.type import FuncType, TensorType, TupleType, bool_, dim, f32


@st.composite
def static_modules(draw: DrawFn) -> Module:
    """A main function over tensors: operators, lets, tuples, calls of functions, branches."""
    builder = Builder(draw)
    chosen = [f32, draw(dtypes())]
    shapes = [draw(small_shapes()) for _ in range(2)]
    builder.palette = [
        TensorType(tuple(map(dim, shape)), each) for shape in shapes for each in chosen
    ]
    definitions: dict[Defined, Definition] = {}
    callable_: list[Var] = []
    for _ in range(builder.count(0, 2)):
        var, function = _function(builder, callable_)
        definitions[var] = function
        callable_.append(var)
    main, function = _function(builder, callable_)
    definitions[main] = function
    return module(definitions, main)


def _function(builder: Builder, callable_: list[Var]) -> tuple[Var, Function]:
    params = [Var(builder.name(), builder.tensor_type()) for _ in range(builder.count(1, 3))]
    scope = GenerationScope([]).inner(params)
    ways: list[growth.Way] = [
        *WAYS,
        *[partial(_call, callable_)] * (2 if callable_ else 0),
        _branch,
    ]
    for _ in range(builder.count(1, 7)):
        builder.choose(ways)(builder, scope, 0)
    parts = scope.pool[::-1][: builder.count(1, 3)]
    result = parts[0]
    if len(parts) > 1:
        items = tuple(part.expr for part in parts)
        result = KnownExpression(Tuple(items), TupleType(tuple(part.type for part in parts)))
    type = FuncType((), (), tuple(map(typed, params)), result.type)
    body = scope.close(result.expr)
    return Var(builder.name(), type), Function((), (), tuple(params), result.type, body)


WAYS: Final[tuple[growth.Way, ...]] = (
    *[growth.grow_operation] * 3, *[growth.grow_any_operator] * 4, *[growth.grow_layer] * 2,
    growth.grow_let, growth.grow_constant, growth.grow_tuple, growth.grow_projection,
)  # fmt: skip


def _call(callable_: list[Var], builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A call of an earlier function."""
    callee = builder.choose(callable_)
    type = typed(callee)
    assert isinstance(type, FuncType)
    args = tuple(growth.choose(builder, scope, 1, param).expr for param in type.params)
    scope.add(Call(callee, args), type.ret)


def _branch(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A choice between two small bodies of one type."""
    type = builder.choose([expression.type for expression in scope.pool[::-1]])
    condition = growth.make(builder, scope, TensorType((), bool_), 0)
    assert condition is not None

    def side() -> Expr:
        inner = scope.inner()
        for _ in range(builder.count(0, 2)):
            operation(builder.draw, inner)
        return growth.choose(builder, inner, 0, type).expr

    scope.add(If(condition, side(), side()), type)
