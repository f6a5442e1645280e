"""How a body grows: one construct after another over the known expressions, then a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hypothesis import reject

from plica.ir.generate.builder import (
    Builder,
    catch_all,
    fields_of,
    instantiate,
    is_first_order,
    split,
)
from plica.ir.generate.neural import any_operator, layer
from plica.ir.generate.operation import filled, operation
from plica.ir.generate.scope import GenerationScope, KnownExpression, typed
from plica.ir.graph import expression as ex
from plica.ir.graph.check import variables_in
from plica.ir.loop.scalar import Scalar, index
from plica.ir.type import DataType, FuncType, TensorType, TupleType, Type, bool_

CALL_LIMIT: Final = 200  # no call site is written whose callee may take more steps than this


def body(
    builder: Builder, scope: GenerationScope, depth: int, type: Type | None = None
) -> KnownExpression:
    """Grow the scope a little and give back a result of the type (of any type if None)."""
    for _ in range(builder.count(0, 1 + 2 * depth)):
        grow(builder, scope, depth)
    result = choose(builder, scope, depth, type)
    builder.retired.extend(var for var, _ in scope.lets)
    return KnownExpression(scope.close(result.expr), result.type)


def choose(
    builder: Builder, scope: GenerationScope, depth: int, type: Type | None
) -> KnownExpression:
    """Something of the type, preferably something made lately."""
    if type is not None:
        expr = make(builder, scope, type, depth)
        return KnownExpression(reject() if expr is None else expr, type)
    if not scope.pool:
        wanted = builder.tensor_type()
        return KnownExpression(_must(make(builder, scope, wanted, depth)), wanted)
    return builder.choose(scope.pool[::-1])


def make(builder: Builder, scope: GenerationScope, type: Type, depth: int) -> ex.Expr | None:
    """An expression of the type, or None if nothing in this scope can have it."""
    known = scope.of(type)
    if known and not builder.chance(4):
        return builder.choose(known[::-1]).expr
    expr = _fresh(builder, scope, type, depth)
    return known[-1].expr if expr is None and known else expr


def _fresh(builder: Builder, scope: GenerationScope, type: Type, depth: int) -> ex.Expr | None:
    match type:
        case TensorType():
            return filled(builder.draw, type)
        case TupleType(items):
            parts = [make(builder, scope, item, depth - 1) for item in items]
            return None if None in parts else ex.Tuple(tuple(map(_must, parts)))
        case DataType():
            ways = builder.constructors_of(type)
            # The first constructor is never recursive, so values end.
            way = builder.choose(ways) if depth > 0 else ways[0]
            expr = _construct(builder, scope, way, type, depth)
            return expr or _construct(builder, scope, ways[0], type, 0)
        case FuncType():
            return _function_of(builder, scope, type, depth)
        case _:
            return None


def _construct(
    builder: Builder, scope: GenerationScope, way: ex.Constructor, type: DataType, depth: int
) -> ex.Expr | None:
    parts = [make(builder, scope, type_, depth - 1) for type_ in fields_of(way, type)]
    return None if None in parts else ex.Call(way, tuple(map(_must, parts)), type.args)


def _function_of(
    builder: Builder, scope: GenerationScope, type: FuncType, depth: int
) -> ex.Expr | None:
    params = tuple(builder.var(param) for param in type.params)
    if len(set(params)) < len(params):
        params = tuple(ex.Var(builder.name(), param) for param in type.params)
    inner = scope.inner(params, type.dims, type.types)
    if depth > 0:
        for _ in range(builder.count(0, depth)):
            grow(builder, inner, depth - 1)
    if (result := make(builder, inner, type.ret, depth - 1)) is None:
        return None
    builder.retired.extend(params)
    return ex.Function(
        type.dims, type.types, params, type.ret, inner.close(result), builder.attributes()
    )


# --- constructs ----------------------------------------------------------------------------------


def grow(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """Add one construct to the scope; some of them do not always fit."""
    ways = SIMPLE if depth <= 0 else (*SIMPLE, *NESTED)
    before = len(scope.pool)
    builder.choose(ways)(builder, scope, depth)
    if len(scope.pool) > before and builder.chance(2):
        # Bound by a let, it stays in the program even if unused.
        value = scope.pool.pop()
        if isinstance(value.expr, ex.Var):
            scope.pool.append(value)
        else:
            bind(builder, scope, value)


def bind(builder: Builder, scope: GenerationScope, value: KnownExpression) -> None:
    """A let of something that is known."""
    var = ex.Var(builder.name(), value.type)
    scope.lets.append((var, value.expr))
    scope.add(var, value.type)


def grow_operation(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """An operator."""
    operation(builder.draw, scope)


def grow_any_operator(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """An operator of the registry, whichever fits."""
    any_operator(builder.draw, scope)


def grow_layer(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A layer of a network."""
    layer(builder.draw, scope)


def grow_constant(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A constant."""
    wanted = builder.tensor_type()
    scope.add(_must(filled(builder.draw, wanted)), wanted)


def grow_tuple(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A tuple of known expressions, or the unit value."""
    items = [builder.choose(scope.pool[::-1]) for _ in range(builder.count(0, 3)) if scope.pool]
    scope.add(
        ex.Tuple(tuple(item.expr for item in items)), TupleType(tuple(item.type for item in items))
    )


def grow_projection(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """An item of a tuple that is known."""
    expressions = scope.having(lambda type: isinstance(type, TupleType) and bool(type.items))
    if not expressions and scope.pool:
        parts = [builder.choose(scope.pool[::-1]) for _ in range(2)]
        items = tuple(part.expr for part in parts), tuple(part.type for part in parts)
        expressions = [scope.add(ex.Tuple(items[0]), TupleType(items[1]))]
    if expressions:
        whole = builder.choose(expressions[::-1])
        assert isinstance(whole.type, TupleType)
        at = builder.count(0, len(whole.type.items) - 1)
        scope.add(ex.Project(whole.expr, at), whole.type.items[at])


def grow_let(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A let of something that is known, which may be a variable itself."""
    if scope.pool:
        bind(builder, scope, builder.choose(scope.pool[::-1]))


def grow_value(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A value of some type: data, a function, a tuple."""
    type = builder.type(scope)
    if (expr := make(builder, scope, type, depth)) is not None:
        scope.add(expr, type)


def grow_if(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A choice between two bodies of one type."""
    type = builder.type(scope, 1)
    condition = make(builder, scope, TensorType((), bool_), depth)
    if make(builder, scope, type, 0) is None:
        return
    then = body(builder, scope.inner(), depth - 1, type)
    orelse = body(builder, scope.inner(), depth - 1, type)
    scope.add(ex.If(_must(condition), then.expr, orelse.expr), type)


def grow_match(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A total match on something that is known."""
    type = builder.type(scope, 1)
    value = _scrutinee(builder, scope, depth)
    if value is None or make(builder, scope, type, 0) is None:
        return
    assert isinstance(value.type, DataType | TupleType)
    clauses = []
    for pattern in split(builder, value.type):
        bound = variables_in(pattern)
        if len(set(bound)) < len(bound):
            return
        clauses.append(ex.Clause(pattern, body(builder, scope.inner(bound), depth - 1, type).expr))
        builder.retired.extend(bound)
    scope.add(ex.Match(value.expr, tuple(clauses)), type)


def _scrutinee(builder: Builder, scope: GenerationScope, depth: int) -> KnownExpression | None:
    """Something with parts: known, or a tuple of data and other things, as nested patterns like."""
    expressions = scope.having(lambda type: isinstance(type, DataType | TupleType))
    if expressions and not builder.chance(3):
        return builder.choose(expressions[::-1])
    wanted: Type = TupleType((builder.type(scope, 1), builder.type(scope, 1)))
    if builder.data:
        name, definition = builder.choose(builder.data)
        data = DataType(name, tuple(builder.type(scope, 1) for _ in definition.types))
        wanted = data if builder.chance(2) else TupleType((data, builder.type(scope, 1)))
    expr = make(builder, scope, wanted, depth)
    return None if expr is None else KnownExpression(expr, wanted)


def grow_partial_match(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A match that covers less than its type, on a value that it does cover."""
    if not builder.data:
        return
    name, definition = builder.choose(builder.data)
    type = DataType(name, tuple(builder.type(scope, 1) for _ in definition.types))
    way = builder.choose(builder.constructors_of(type))
    if (value := _construct(builder, scope, way, type, depth)) is None:
        return
    pattern = ex.PConstructor(way, tuple(catch_all(builder, each) for each in fields_of(way, type)))
    bound = variables_in(pattern)
    if len(set(bound)) == len(bound):
        result = body(builder, scope.inner(bound), depth - 1)
        builder.retired.extend(bound)
        scope.add(ex.Match(value, (ex.Clause(pattern, result.expr),), total=False), result.type)


def grow_function(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A closure over known expressions; sometimes polymorphic or with its own dims."""
    types = builder.type_vars(1) if builder.chance(4) else ()
    dims = builder.dims(1) if builder.chance(4) else ()
    params = [ex.Var(builder.name(), builder.type(scope, 1)) for _ in range(builder.count(0, 2))]
    params += [ex.Var(builder.name(), type_var) for type_var in types]
    params += [
        ex.Var(builder.name(), TensorType((dim,), builder.tensor_type().dtype)) for dim in dims
    ]
    inner = scope.inner(params, dims, types)
    result = body(builder, inner, depth - 1)
    builder.retired.extend(params)
    type = FuncType(dims, types, tuple(map(typed, params)), result.type)
    function = ex.Function(
        dims, types, tuple(params), result.type, result.expr, builder.attributes()
    )
    # A polymorphic function is used through a variable, as in the text.
    var = ex.Var(builder.name(), type)
    scope.lets.append((var, function))
    known = scope.add(var, type)
    if not types and not dims and builder.chance(3):
        known = scope.add(function, type)
    if not builder.chance(3):
        call_known(builder, scope, known, depth)


def grow_call(builder: Builder, scope: GenerationScope, depth: int) -> None:
    """A call of something that is known."""
    expressions = scope.having(lambda type: isinstance(type, FuncType))
    if expressions := [each for each in expressions if _cost(builder, each.expr) <= CALL_LIMIT]:
        call_known(builder, scope, builder.choose(expressions[::-1]), depth)


def call_known(
    builder: Builder, scope: GenerationScope, callee: KnownExpression, depth: int
) -> KnownExpression | None:
    """A call of this function with arguments made for it."""
    signature = callee.type
    assert isinstance(signature, FuncType)
    types = tuple(builder.type(scope, 1) for _ in signature.types)
    sizes = tuple(_size(builder, scope) for _ in signature.dims)
    params, ret = instantiate(signature, types, sizes)
    args = [make(builder, scope, param, depth - 1) for param in params]
    if None in args:
        return None
    return scope.add(ex.Call(callee.expr, tuple(map(_must, args)), types), ret)


def _size(builder: Builder, scope: GenerationScope) -> Scalar:
    if scope.dims and builder.chance(2):
        return builder.choose(scope.dims)
    return index(builder.choose((2, 3, 1, 0)))


def _cost(builder: Builder, callee: ex.Expr) -> int:
    return builder.cost.get(callee, 1) if isinstance(callee, ex.Var) else 1


def _must(expr: ex.Expr | None) -> ex.Expr:
    assert expr is not None
    return expr


Way = Callable[[Builder, GenerationScope, int], None]
SIMPLE: Final[tuple[Way, ...]] = (
    grow_operation, grow_operation, grow_any_operator, grow_any_operator, grow_layer, grow_tuple,
    grow_projection, grow_let, grow_constant,
)  # fmt: skip
NESTED: Final[tuple[Way, ...]] = (
    grow_call, grow_call, grow_value, grow_function, grow_function, grow_if, grow_match, grow_match,
    grow_partial_match,
)  # fmt: skip
__all__ = ["body", "call_known", "choose", "grow", "is_first_order", "make"]
