"""First-order modules with static shapes: the input of `compile`."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.generate import growth
from plica.ir.generate.builder import Builder
from plica.ir.generate.neural import any_operator, layer
from plica.ir.generate.operation import operation
from plica.ir.generate.scope import GenerationScope, KnownExpression, typed
from plica.ir.generate.value import dtypes, small_shapes
from plica.ir.graph.expression import Call, Expr, Function, If, Tuple, Var
from plica.ir.graph.module import Defined, Definition, Module, module
from plica.ir.type import DType, FuncType, TensorType, TupleType, bool_, dim, f32


@st.composite
def static_modules(
    draw: DrawFn, calls: bool = True, branches: bool = True, of: Sequence[DType] = ()
) -> Module:
    """A main function over tensors: operators, lets, tuples, calls of functions, branches.

    `of` are the dtypes to begin with; casts may bring in others.
    """
    builder = Builder(draw)
    chosen = list(of) or [f32, draw(dtypes())]
    shapes = [draw(small_shapes()) for _ in range(2)]
    builder.palette = [
        TensorType(tuple(map(dim, shape)), each) for shape in shapes for each in chosen
    ]
    definitions: dict[Defined, Definition] = {}
    callable_: list[Var] = []
    for _ in range(builder.count(0, 2) if calls else 0):
        var, function = _function(builder, callable_, branches)
        definitions[var] = function
        callable_.append(var)
    main, function = _function(builder, callable_, branches)
    definitions[main] = function
    return module(definitions, main)


def _function(builder: Builder, callable_: list[Var], branches: bool) -> tuple[Var, Function]:
    params = [Var(builder.name(), builder.tensor_type()) for _ in range(builder.count(1, 3))]
    scope = GenerationScope([]).inner(params)
    for _ in range(builder.count(1, 7)):
        _grow(builder, scope, callable_, branches)
    parts = scope.pool[::-1][: builder.count(1, 3)]
    result = parts[0]
    if len(parts) > 1:
        items = tuple(part.expr for part in parts)
        result = KnownExpression(Tuple(items), TupleType(tuple(part.type for part in parts)))
    type = FuncType((), (), tuple(map(typed, params)), result.type)
    body = scope.close(result.expr)
    return Var(builder.name(), type), Function((), (), tuple(params), result.type, body)


def _grow(builder: Builder, scope: GenerationScope, callable_: list[Var], branches: bool) -> None:
    kinds = (
        ["operator"] * 3 + ["any"] * 4 + ["layer"] * 2 + ["let", "constant", "tuple", "projection"]
    )
    kinds += ["call"] * 2 if callable_ else []
    kinds += ["branch"] if branches else []
    match builder.choose(kinds):
        case "operator":
            operation(builder.draw, scope)
        case "layer":
            layer(builder.draw, scope)
        case "any":
            any_operator(builder.draw, scope)
        case "let":
            growth.grow_let(builder, scope, 0)
        case "constant":
            growth.grow_constant(builder, scope, 0)
        case "tuple":
            growth.grow_tuple(builder, scope, 0)
        case "projection":
            growth.grow_projection(builder, scope, 0)
        case "call":
            callee: Var = builder.choose(callable_)
            type = typed(callee)
            assert isinstance(type, FuncType)
            args = tuple(growth.choose(builder, scope, 1, param).expr for param in type.params)
            scope.add(Call(callee, args), type.ret)
        case _:
            _branch(builder, scope)


def _branch(builder: Builder, scope: GenerationScope) -> None:
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
