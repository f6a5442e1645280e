"""Programs on whole arrays: the graph of a module, written operator by operator in a dialect.

Functions are written where they are called, a function that calls itself last is a loop.  What has
no arrays - data types, functions as results, sizes that are not known - is refused, all at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

from plica.core import CompilerBug, Name, Term, post_order
from plica.frontend.whole_array.dialect import ArrayDialect, ArrayValue
from plica.frontend.whole_array.expression import write
from plica.ir.graph import expression as ex
from plica.ir.graph.module import Module, module
from plica.ir.graph.operator import Operator
from plica.ir.graph.shape_specialisation import has_open_dims, open_dims, sized, tensors
from plica.ir.graph.unique_binder import rename_apart
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.tensor import Compute
from plica.ir.op import find
from plica.ir.text.script.mark import Scripted, as_module
from plica.ir.type import TensorType, TupleType, Type, infer, static_shape, type_of
from plica.runtime.error import Diagnostic, Place, UnsupportedError

Scope: TypeAlias = "MutableMapping[Term, Value]"
MAX_DEPTH: Final = 60  # functions and branches inside of others


@frozen(eq=False)
class ScopedFunction:
    """A function and the scope that it was made in."""

    function: ex.Function
    scope: Scope


Value: TypeAlias = "ArrayValue | ScopedFunction | tuple[Value, ...]"


def sized_main(of: Module | Scripted, sizes: Mapping[str, int]) -> tuple[Module, ex.Function]:
    """A module with numbers for its sizes, and its main function; open ones are refused."""
    inferred = infer(as_module(of))
    named = {dim: sizes[str(dim.name)] for dim in open_dims(inferred) if str(dim.name) in sizes}
    if named:
        inferred = sized(inferred, named)
    if has_open_dims(inferred):
        found = ", ".join(str(param.type) for param in inferred.main_function().params)
        message = "A program is written for sizes that are known."
        hint = "Give the sizes of the inputs: sizes={'n': 8}."
        raise UnsupportedError.of("unsupported", message, None, "numbers", found, hint)
    return inferred, inferred.main_function()


def write_program(d: ArrayDialect, of: Module, params: Sequence[Value]) -> list[ArrayValue]:
    """The results of the main function on values of its parameters."""
    main = rename_apart(of.main_function(), of.definitions())
    if wrong := list(_unwritten(d, of)):
        raise UnsupportedError(wrong[0], *wrong[1:])
    scope: Scope = dict(zip(main.params, params, strict=True))
    return leaves(ProgramWriter(d, of.definitions()).value(main.body, scope))


def leaves(of: Value) -> list[ArrayValue]:
    """The arrays of a value."""
    if isinstance(of, tuple):
        return [leaf for each in of for leaf in leaves(each)]
    if isinstance(of, ScopedFunction):
        raise UnsupportedError.of("unsupported", "A function is no array: results are tensors.")
    return [of]


def gathered(of: Type | None, arrays: Iterator[ArrayValue]) -> Value:
    """The value of a type that arrays are."""
    if isinstance(of, TupleType):
        return tuple([gathered(item, arrays) for item in of.items])
    return next(arrays)


def _unwritten(d: ArrayDialect, of: Module) -> Iterator[Diagnostic]:
    """What of a module no dialect writes."""
    kinds = (ex.Apply, ex.Call, ex.Const, ex.Function, ex.If, ex.Let, ex.Project, ex.Tuple, ex.Var)
    reached: dict[Term, None] = {}
    stack: list[Term] = [of.main_function()]
    table = of.definitions()
    while stack:
        for node in post_order(stack.pop()):
            found = table.get(node) if isinstance(node, ex.Var) else None
            if found is not None and not isinstance(found, ex.Function):
                message = f"{node.name} is no function of the graph language."  # type: ignore[attr-defined]  # a variable
                yield Diagnostic("unsupported", message, Place(node=str(node.name)))  # type: ignore[attr-defined]  # a variable
            elif found is not None and node not in reached:
                reached[node] = None
                stack.append(found)
            elif isinstance(node, ex.Expr) and not isinstance(node, kinds):
                word = type(node).__name__
                message = f"{word} of the graph language is not written as {d.name}."
                expected = "operators, tuples, functions, branches and loops"
                yield Diagnostic("unsupported", message, Place(node=word), expected, word)


class ProgramWriter:
    """Writes expressions; each once in the scope that it is first met in."""

    def __init__(self, d: ArrayDialect, table: Mapping[Term, Any]) -> None:
        self.d, self.table = d, table
        self.depth = 0
        self.entered: list[ex.Function] = []
        self.known: dict[tuple[Any, ...], ex.Function] = {}

    def value(self, root: ex.Expr, scope: Scope) -> Value:
        """The value of an expression."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in scope:
                stack.pop()
                continue
            if isinstance(node, ex.Let) and node.value in scope:
                scope[node.var] = scope[node.value]
            if isinstance(node, ex.Let) and isinstance(node.value, ex.Function):
                scope[node.var] = ScopedFunction(node.value, scope)
            if missing := [need for need in self.needs(node) if need not in scope]:
                stack.append(missing[0])
                continue
            stack.pop()
            scope[node] = self.add(node, scope)
        return scope[root]

    @staticmethod
    def needs(node: ex.Expr) -> Sequence[ex.Expr]:
        """The expressions that are written before a node, in their order."""
        match node:
            case ex.Let(_, value, body):
                return (body,) if isinstance(value, ex.Function) else (value, body)
            case ex.If(condition, _, _):
                return (condition,)
            case ex.Apply(_, args, _):
                return args
            case ex.Tuple(items):
                return items
            case ex.Project(value, _):
                return (value,)
            case ex.Call(function, args):
                return (function, *args)
        return ()

    def add(self, node: ex.Expr, scope: Scope) -> Value:
        """An expression whose parts are written."""
        match node:
            case ex.Const():
                return self.d.constant(node.numpy(), node.dtype)
            case ex.Var() if isinstance(found := self.table.get(node), ex.Function):
                return ScopedFunction(rename_apart(found, self.table), {})
            case ex.Function():
                return ScopedFunction(node, scope)
            case ex.Let():
                return scope[node.body]
            case ex.Tuple(items):
                return tuple([scope[item] for item in items])
            case ex.Project(value, index):
                whole = scope[value]
                assert isinstance(whole, tuple)
                return whole[index]
            case ex.If():
                return self.choice(node, scope)
            case ex.Call(function, args):
                callee = scope[function]
                assert isinstance(callee, ScopedFunction)
                return self.call(callee, [scope[arg] for arg in args])
            case ex.Apply():
                return self.operator(node, [scope[arg] for arg in node.args])
        raise CompilerBug(f"{type(node).__name__} is neither written nor refused.")

    def choice(self, node: ex.If, scope: Scope) -> Value:
        """Branches, of which each sees the values around it."""
        (condition,) = leaves(scope[node.condition])
        of = type_of(node)

        def block(branch: ex.Expr) -> Any:
            return lambda given: leaves(self.deeper(branch, ChainMap({}, scope)))

        array_values = self.d.branch(condition, block(node.then), block(node.orelse))
        return gathered(of, iter(array_values))

    def deeper(self, root: ex.Expr, scope: Scope) -> Value:
        """The value of an expression in a scope of its own."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = "Functions and branches are nested too deeply."
            raise UnsupportedError.of("unsupported", message, None, f"{MAX_DEPTH}")
        found = self.value(root, scope)
        self.depth -= 1
        return found

    def call(self, of: ScopedFunction, args: Sequence[Value]) -> Value:
        """A function written where it is called; one that calls itself last is a loop."""
        function = of.function
        if function in self.entered:
            message = (
                f"A function that calls itself is written as {self.d.name} where it is a loop."
            )
            expected = "a branch whose one side is the call, and the other the result"
            raise UnsupportedError.of("unsupported", message, None, expected)
        scope: Scope = ChainMap({}, of.scope)
        if (found := self.looped(function, scope)) is not None:
            return self.loop(function, scope, args, *found)
        self.entered.append(function)
        result = self.deeper(function.body, self.bound(function, args, scope))
        self.entered.pop()
        return result

    @staticmethod
    def bound(function: ex.Function, args: Sequence[Value], scope: Scope) -> Scope:
        """A scope in which the parameters are values."""
        inner: Scope = ChainMap({}, scope)
        inner.update(zip(function.params, args, strict=True))
        return inner

    # --- loops -----------------------------------------------------------------------------------

    def itself(self, node: Term, function: ex.Function, scope: Scope) -> bool:
        """Whether a variable is the function."""
        if not isinstance(node, ex.Var):
            return False
        bound = scope.get(node)
        if isinstance(bound, ScopedFunction):
            return bound.function is function
        found = self.table.get(node)
        return isinstance(found, ex.Function) and rename_apart(found, self.table) is function

    def looped(
        self, function: ex.Function, scope: Scope
    ) -> tuple[list[ex.Let], ex.If, ex.Call, bool] | None:
        """The lets, the branch and the call of a function that ends by calling itself."""
        lets: list[ex.Let] = []
        body = function.body
        while isinstance(body, ex.Let):
            lets.append(body)
            body = body.body
        if not isinstance(body, ex.If):
            return None
        for side, other, goes_on in (
            (body.then, body.orelse, True),
            (body.orelse, body.then, False),
        ):
            inner = side
            while isinstance(inner, ex.Let):
                inner = inner.body
            if not isinstance(inner, ex.Call) or not self.itself(inner.callee, function, scope):
                continue
            free = [*[let.value for let in lets], body.condition, other, *inner.args]
            if not any(self.itself(e, function, scope) for f in free for e in post_order(f)):
                return lets, body, inner, goes_on
        return None

    def loop(  # noqa: PLR0917  # what a loop is made of
        self, function: ex.Function, scope: Scope, args: Sequence[Value], lets: list[ex.Let],
        branch: ex.If, call: ex.Call, goes_on: bool,
    ) -> Value:  # fmt: skip
        """A loop over the parameters, and after it the result."""
        types = [param.type for param in function.params]

        def inside(given: Sequence[ArrayValue]) -> Scope:
            arrays = iter(given)
            inner = self.bound(function, [gathered(type_, arrays) for type_ in types], scope)
            for let in lets:
                self.bind(let, inner)
            return inner

        def test(given: Sequence[ArrayValue]) -> list[ArrayValue]:
            (condition,) = leaves(self.deeper(branch.condition, inside(given)))
            return [condition if goes_on else self.d.apply("not", condition)]

        def step(given: Sequence[ArrayValue]) -> list[ArrayValue]:
            inner = inside(given)
            side: ex.Expr = branch.then if goes_on else branch.orelse
            while isinstance(side, ex.Let):
                self.bind(side, inner)
                side = side.body
            return [leaf for arg in call.args for leaf in leaves(self.deeper(arg, inner))]

        last = self.d.loop([leaf for arg in args for leaf in leaves(arg)], test, step)
        return self.deeper(branch.orelse if goes_on else branch.then, inside(last))

    def bind(self, of: ex.Let, scope: Scope) -> None:
        """The variable of a let in a scope."""
        closure = isinstance(of.value, ex.Function)
        scope[of.var] = ScopedFunction(of.value, scope) if closure else self.deeper(of.value, scope)  # type: ignore[arg-type]  # a function

    # --- operators -------------------------------------------------------------------------------

    def operator(self, node: ex.Apply, given: Sequence[Value]) -> Value:
        """An operator: the dialect's own, its tensor expressions, or its decomposition."""
        args = [leaf for each in given for leaf in leaves(each)]
        if (array_value := self.d.direct(node, args)) is not None:
            return array_value
        if (record := find(node.op)) is None:
            raise CompilerBug(f"The operator {node.op} of an inferred module does not exist.")
        if record.compute is None:
            types = tuple([_type_of(each) for each in given])
            function = self.decomposition(record, node, types)
            return self.deeper(function.body, dict(zip(function.params, given, strict=True)))
        buffers = [Buffer(Name("x", at), _sizes(arg), arg.dtype) for at, arg in enumerate(args)]
        computed = record.compute(dict(node.attrs), *buffers)
        values = dict(zip(buffers, args, strict=True))
        if isinstance(computed, Compute):
            return write(self.d, computed, [values[buffer] for buffer in computed.inputs])
        return tuple([write(self.d, e, [values[b] for b in e.inputs]) for e in computed])

    def decomposition(
        self, record: Operator, node: ex.Apply, types: tuple[Type, ...]
    ) -> ex.Function:
        """The function of other operators that an operator is, once for all its calls."""
        key = (node.op, node.attrs, types)
        if (function := self.known.get(key)) is None:
            assert record.decompose is not None
            params = tuple([ex.Var(Name("x", at), of) for at, of in enumerate(types)])
            body = record.decompose(dict(node.attrs), *params)
            name = ex.Var(Name("decomposition"), None)
            whole = infer(module({name: ex.Function((), (), params, None, body)}, name))
            function = rename_apart(whole.main_function(), whole.definitions())
            self.known[key] = function
        return function


def _sizes(of: ArrayValue) -> tuple[Any, ...]:
    from plica.ir.loop.scalar import index

    return tuple([index(each) for each in of.shape])


def _type_of(of: Value) -> Type:
    if isinstance(of, tuple):
        return TupleType(tuple([_type_of(each) for each in of]))
    assert isinstance(of, ArrayValue)
    return TensorType(_sizes(of), of.dtype)


def flat_types(of: Type | None) -> list[tuple[tuple[int, ...], Any]]:
    """The sizes and dtypes of the tensors of a parameter."""
    return [(static_shape(tensor) or (), tensor.dtype) for tensor in tensors(of)]
