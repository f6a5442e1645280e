"""Well-typed modules that cover every construct of the graph language.

Types are known by construction: every variable is typed, every polymorphic call has its type
arguments, and there is no `Literal`; so generation does not depend on inference, and inference can
be tested against it. Every module terminates on every input: a recursive function counts down from
at most `DEPTH`, whatever it is given, or follows the structure of a data value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from hypothesis import assume, strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, all_of, post_order
from plica.ir.generate.builder import Builder, catch_all, dims_in, fields_of, is_first_order
from plica.ir.generate.growth import CALL_LIMIT, bind, body, call_known, choose, grow, make
from plica.ir.generate.operation import apply
from plica.ir.generate.scalar import dims as dims_over
from plica.ir.generate.scope import GenerationScope, KnownExpression, typed
from plica.ir.graph import expression as ex
from plica.ir.graph.check import variables_in
from plica.ir.graph.expression import Var
from plica.ir.graph.module import (
    ConstructorDef,
    DataDef,
    Defined,
    Definition,
    Extern,
    Module,
    module,
)
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import DataName, DataType, FuncType, TensorType, TupleType, Type, TypeVar, i64

DEPTH: Final = 4
EXTERNS: Final[Mapping[str, Callable[..., Any]]] = {"first": lambda x, y: x, "same": lambda x: x}
"""The implementations of extern symbols in generated modules, for interpreters."""

Definitions: TypeAlias = list[tuple[Defined, Definition]]


# --- data types ----------------------------------------------------------------------------------


def data_type(builder: Builder) -> tuple[DataName, DataDef]:
    """A data type: the first constructor ends, the others may contain the type itself."""
    name = DataName(builder.name(st.sampled_from(("List", "Tree", "D", "x"))))
    types = builder.type_vars(builder.count(0, 1))
    whole = DataType(name, types)
    hints = ["Nil", "Cons", "Leaf", "Node", "C", "lambda", "C_1"]
    words = builder.take(st.permutations(hints))
    found = []
    for i in range(builder.count(1, 3)):
        options: list[Type] = [builder.tensor_type(), *types]
        options += [DataType(other, (options[0],) * len(d.types)) for other, d in builder.data]
        if i:
            options += [whole, TupleType((options[0], whole)), FuncType((), (), types, options[0])]
        fields = tuple(builder.choose(options) for _ in range(builder.count(min(i, 1), 3)))
        # Unlike a variable's name, a constructor's may be that of another data type's too.
        found.append(ConstructorDef(Name(words[i], builder.count(0, 1)), fields))
    return name, DataDef(types, tuple(found))


# --- functions -----------------------------------------------------------------------------------


def signature(
    builder: Builder, scope: GenerationScope, first_order: bool = False
) -> tuple[tuple[ScalarVar, ...], tuple[TypeVar, ...], list[ex.Var]]:
    """Dims, type variables and parameters of a function; every dim is some parameter's extent."""
    own = builder.dims(builder.count(0, 2))
    types = () if first_order else builder.type_vars(builder.count(0, 1))
    params: list[Type] = [
        TensorType((var, *_more(builder, own)), builder.tensor_type().dtype) for var in own
    ]
    params += types
    inner = scope.inner((), own, types)
    for _ in range(builder.count(0, 2)):
        if types and builder.chance(2):
            params.append(_over(builder, types[0]))
        else:
            params.append(builder.type(inner, 1, functions=not first_order))
    dims = dims_in(params, own)
    return dims, types, [ex.Var(builder.name(), param) for param in params]


def _more(builder: Builder, own: tuple[ScalarVar, ...]) -> tuple[Any, ...]:
    return tuple(builder.take(dims_over(own)) for _ in range(builder.count(0, 1)))


def _over(builder: Builder, a: TypeVar) -> Type:
    """A type that mentions a type variable."""
    tensor = builder.tensor_type()
    options: list[Type] = [
        a,
        FuncType((), (), (a,), a),
        FuncType((), (), (a, tensor), tensor),
        TupleType((a, a)),
    ]
    options += [DataType(name, (a,) * len(d.types)) for name, d in builder.data]
    return builder.choose(options)


def plain(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """A function over earlier definitions; it may be polymorphic, symbolic and higher order."""
    dims, types, params = signature(builder, scope)
    inner = scope.inner(params, dims, types)
    tensors = [param for param in params if isinstance(param.type, TensorType)]
    if tensors and builder.chance(4):
        loop(builder, inner, depth, builder.choose(tensors))
    result = body(builder, inner, depth)
    function = ex.Function(
        dims, types, tuple(params), result.type, result.expr, builder.attributes()
    )
    return [(_global(builder, function), function)]


def counting(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """A function that calls itself while its first argument, cut off at DEPTH, is positive."""
    dims, types, params = signature(builder, scope)
    ret = builder.choose([typed(param) for param in params] or [builder.tensor_type()])
    type = FuncType(dims, types, (_SCALAR, *map(typed, params)), ret)
    itself = ex.Var(builder.name(), type)
    function = count_down(builder, scope, depth, type, itself)
    builder.cost[itself] = DEPTH * cost(builder, function)
    return [(itself, function)]


def mutual(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """Two functions that call each other while their first argument is positive."""
    param = builder.tensor_type()
    type = FuncType((), (), (_SCALAR, param), param)
    even, odd = (ex.Var(builder.name(), type) for _ in range(2))
    made: Definitions = []
    for itself, other in ((even, odd), (odd, even)):
        made.append((itself, count_down(builder, scope, depth, type, other)))
    total = sum(cost(builder, value) for _, value in made)
    builder.cost |= {even: DEPTH * total, odd: DEPTH * total}
    return made


def count_down(
    builder: Builder, scope: GenerationScope, depth: int, type: FuncType, again: ex.Var
) -> ex.Function:
    """`if count <= 0: base else: f(again(min(count, DEPTH) - 1, ...))`, with count first."""
    count, *params = (ex.Var(builder.name(), param) for param in type.params)
    zero, one, top = ex.const(0, i64), ex.const(1, i64), ex.const(DEPTH, i64)
    stop = apply("less_equal", count, zero)
    fewer = apply("minimum", count, top)
    less = None if fewer is None else apply("subtract", fewer, one)
    assert stop is not None
    assert less is not None
    cheap = without_definitions(builder, scope)
    inner = cheap.inner((count, *params), type.dims, type.types)
    base = body(builder, inner.inner(), min(depth, 1), type.ret)
    args = [less]
    for param in params:
        expr = make(builder, inner, typed(param), 0)
        args.append(param if expr is None else expr)
    # Polymorphic recursion keeps its own types and the dims of its parameters.
    if type.dims:
        args = [less, *params]
    call = ex.Call(again, tuple(args), type.types)
    step = inner.inner()
    step.add(call, type.ret)
    rest = body(builder, step, min(depth, 1), type.ret)
    choice = ex.If(stop, base.expr, rest.expr)
    return ex.Function(
        type.dims, type.types, (count, *params), type.ret, choice, builder.attributes()
    )


def structural(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """A function that follows the structure of a data value."""
    if not builder.data:
        return counting(builder, scope, depth)
    name, definition = builder.choose(builder.data)
    types = builder.type_vars(len(definition.types))
    whole = DataType(name, types)
    ret = builder.tensor_type() if builder.chance(2) else whole
    tree, extra = ex.Var(builder.name(), whole), ex.Var(builder.name(), ret)
    type = FuncType((), types, (whole, ret), ret)
    itself = ex.Var(builder.name(), type)
    inner = without_definitions(builder, scope).inner((tree, extra), (), types)
    clauses = []
    for way in builder.constructors_of(whole):
        pattern = ex.PConstructor(
            way, tuple(catch_all(builder, type_) for type_ in fields_of(way, whole))
        )
        bound = variables_in(pattern)
        assume(len(set(bound)) == len(bound))
        case = inner.inner(bound)
        for var in bound:
            if var.type is whole:
                case.add(ex.Call(itself, (var, extra), types), ret)
        clauses.append(ex.Clause(pattern, body(builder, case, min(depth, 1), ret).expr))
    function = ex.Function((), types, (tree, extra), ret, ex.Match(tree, tuple(clauses)))
    builder.cost[itself] = 20 * cost(builder, function)
    return [(itself, function)]


def local_recursion(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """A function that binds a local recursive function and calls it."""
    param = builder.tensor_type()
    x = ex.Var(builder.name(), param)
    inner = scope.inner((x,))
    loop(builder, inner, depth, x)
    result = body(builder, inner, depth)
    outer = ex.Function((), (), (x,), result.type, result.expr)
    return [(_global(builder, outer), outer)]


def loop(builder: Builder, scope: GenerationScope, depth: int, x: ex.Var) -> None:
    """Let a function that calls itself, and call it on a tensor."""
    param = typed(x)
    type = FuncType((), (), (_SCALAR, param), param)
    itself = ex.Var(builder.name(), type)
    function = count_down(builder, scope, depth, type, itself)
    builder.cost[itself] = DEPTH * cost(builder, function)
    scope.lets.append((itself, function))
    scope.add(itself, type)
    scope.add(ex.Call(itself, (ex.const(builder.count(0, DEPTH), i64), x)), param)


def higher_order(builder: Builder, scope: GenerationScope, depth: int) -> Definitions:
    """A function of functions: it applies one twice, or composes two into a closure."""
    a, b, c = builder.type_vars(3)
    f, g = (
        ex.Var(builder.name(), FuncType((), (), (b,), c)),
        ex.Var(builder.name(), FuncType((), (), (a,), b)),
    )
    x = ex.Var(builder.name(), a)
    composed = ex.Call(f, (ex.Call(g, (x,)),))
    if builder.chance(2):
        function = ex.Function((), (a, b, c), (f, g, x), c, composed, builder.attributes())
        return [(_global(builder, function), function)]
    closure = ex.Function((), (), (x,), c, composed)
    ret = FuncType((), (), (a,), c)
    function = ex.Function((), (a, b, c), (f, g), ret, closure, builder.attributes())
    return [(_global(builder, function), function)]


def extern(builder: Builder) -> tuple[ex.Var, Extern]:
    """A function defined elsewhere: one of `EXTERNS`."""
    symbol = builder.choose(sorted(EXTERNS))
    x = builder.tensor_type()
    params = (x,) if symbol == "same" else (x, builder.tensor_type())
    type = FuncType((), (), params, x)
    return ex.Var(builder.name(), type), Extern(symbol, type)


TEMPLATES: Final = (plain, counting, structural, higher_order, mutual, local_recursion)


def main(builder: Builder, scope: GenerationScope, depth: int) -> tuple[ex.Var, ex.Function]:
    """The function a module runs: tensors and tuples of them in, anything but a function out."""
    plain_scope = GenerationScope([each for each in scope.pool if is_first_order(each.type)])
    kept, builder.data = builder.data, []
    dims, _, params = signature(builder, plain_scope, first_order=True)
    builder.data = kept
    inner = scope.inner(params, dims)
    if builder.data:
        name, definition = builder.choose(builder.data)
        here = DataType(name, tuple(builder.tensor_type() for _ in definition.types))
        if (value := make(builder, inner, here, depth)) is not None:
            inner.add(value, here)
    tensors = [param for param in params if isinstance(param.type, TensorType)]
    if tensors and builder.chance(3):
        loop(builder, inner, depth, builder.choose(tensors))
    for known in scope.pool:  # what is defined is used, mostly
        if isinstance(known.type, FuncType) and builder.chance(2):
            use(builder, inner, known, depth)
    result = _results(builder, inner, depth)
    function = ex.Function(dims, (), tuple(params), result.type, result.expr)
    return _global(builder, function), function


def use(builder: Builder, scope: GenerationScope, callee: KnownExpression, depth: int) -> None:
    """A call of a definition, bound by a let so that it is kept; then a call of its result, if it
    is a function."""
    if isinstance(callee.expr, ex.Var) and builder.cost.get(callee.expr, 1) > CALL_LIMIT:
        return
    for _ in range(2):
        if (expression := call_known(builder, scope, callee, depth)) is None:
            return
        if not isinstance(expression.type, FuncType):
            bind(builder, scope, expression)
            return
        callee = expression


def _results(builder: Builder, scope: GenerationScope, depth: int) -> KnownExpression:
    """A body whose result has several parts at times, so that little of it is in vain."""
    for _ in range(builder.count(1, 4 + 2 * depth)):
        grow(builder, scope, depth)
    if not (usable := [each for each in scope.pool[::-1] if is_first_order(each.type)]):
        wanted = builder.tensor_type()
        usable = [KnownExpression(choose(builder, scope, depth, wanted).expr, wanted)]
    parts = usable[: builder.count(1, 3)]
    if len(parts) == 1:
        return KnownExpression(scope.close(parts[0].expr), parts[0].type)
    items = ex.Tuple(tuple(part.expr for part in parts))
    return KnownExpression(scope.close(items), TupleType(tuple(part.type for part in parts)))


def without_definitions(builder: Builder, scope: GenerationScope) -> GenerationScope:
    """The scope without functions that may take many steps: recursion multiplies them."""
    costly = {var for var, steps in builder.cost.items() if steps > 5}
    pool = [expression for expression in scope.pool if not _calls(expression.expr, costly)]
    return GenerationScope(pool, scope.dims, scope.types)


def _calls(expr: ex.Expr, costly: set[ex.Var]) -> bool:
    return bool(costly) and any(node in costly for node in post_order(expr))


def cost(builder: Builder, function: Definition) -> int:
    """About how many calls one call of the function leads to."""
    calls = all_of(ex.Call, function)
    return 1 + sum(
        builder.cost.get(node.callee, 1) for node in calls if isinstance(node.callee, ex.Var)
    )


def _global(builder: Builder, function: ex.Function) -> ex.Var:
    assert function.ret is not None
    type = FuncType(function.dims, function.types, tuple(map(typed, function.params)), function.ret)
    var = ex.Var(builder.name(), type)
    builder.cost[var] = cost(builder, function)
    return var


_SCALAR: Final = TensorType((), i64)


@st.composite
def modules(draw: DrawFn, externs: bool = False, depth: int = 2) -> Module:
    """Modules with data types, functions of every template, and a main function.

    With `externs` some call functions defined elsewhere: `EXTERNS` gives their meaning.
    """
    builder = Builder(draw)
    builder.settle_palette()
    definitions: Definitions = []
    for _ in range(builder.count(0, 2)):
        made = data_type(builder)
        builder.data.append(made)
        definitions.append(made)
    pool: list[KnownExpression] = []
    if externs:
        definitions += [extern(builder) for _ in range(builder.count(0, 2))]
        pool += [KnownExpression(var, typed(var)) for var, _ in definitions if isinstance(var, Var)]
    for name, definition in builder.data:
        if not definition.types:  # constructors are functions too, where they need no type
            ways = builder.constructors_of(name)
            pool += [
                KnownExpression(way, way.type) for way in ways if isinstance(way.type, FuncType)
            ]
    for _ in range(builder.count(0, 3)):
        template = builder.choose(TEMPLATES)
        found = template(builder, GenerationScope(list(pool)), depth)
        definitions += found
        pool += [KnownExpression(var, typed(var)) for var, _ in found if isinstance(var, Var)]
    root, function = main(builder, GenerationScope(list(pool)), depth)
    definitions.append((root, function))
    return module(dict(definitions), root)
