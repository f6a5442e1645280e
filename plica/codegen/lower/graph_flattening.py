"""Flattening: a module becomes one function without lets, calls, closures or tuples inside.

The result is a graph of operators over inputs and constants, with `If` for run-time decisions
(several results of an `If` or an operator are selected by `Project`). Calls of kernels and externs
stay calls, by name. It is built by running the program on symbols: functions and tuples are static
values, tensors are nodes of the result. Purity makes this cheap: the same function of the same
arguments is the same node.

    before:  def twice(f, x): return f(f(x))
             def main(x): y = twice(lambda v: v + 1, x); return y * y
    after:   def main(x): return (x + 1 + 1) * (x + 1 + 1)        (one shared node)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from plica.codegen.lower.supported import unsupported
from plica.core import CompilerBug, Term, fold_into, free_vars, post_order, substitute
from plica.core.collector import paused
from plica.ir.graph import expression as ex
from plica.ir.graph.module import Defined, Definition, Extern, Module, module
from plica.ir.graph.unique_binder import rename_apart
from plica.ir.loop import Kernel, Lit, Scalar
from plica.ir.op import find
from plica.ir.passes import form
from plica.ir.type import TensorType, TupleType, Type, dim, normal_dim, type_of
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.type.size import solve, type_equations

Value: TypeAlias = "ex.Expr | tuple[Value, ...] | ResolvedClosure"

LIMIT: Final = 500_000
"""How many calls and operators a program may have once every call is written out."""

SAMPLE: Final = 5_000  # the number of calls after which their total is estimated
HOPELESS: Final = 100 * LIMIT
"""A program of this many calls is refused if its first ones are not the same again and again."""


def is_resolved(of: Module) -> bool:
    """Whether a module is one function over tensors, without lets and functions inside; what it
    calls are kernels and externs, and nothing else is in the module."""
    body = of.main_function().body
    outside = _called_outside(body, of.definitions())
    if len(of.names) != 1 + len(outside):
        return False
    return not any(
        isinstance(node, ex.Let | ex.Function | ex.Match | ex.Constructor | ex.Literal)
        or (isinstance(node, ex.Call) and node.callee not in outside)
        for node in post_order(body)
    )


form("resolved", is_resolved)


def flatten_graph(of: Module) -> Module:
    """The inferred module as one first-order function; everything unsupported is refused."""
    if problems := unsupported(of, sizes_come=True):
        raise UnsupportedError(problems[0], *problems[1:])
    assert of.main is not None  # or it would have been refused
    function = of.main_function()
    if any(isinstance(term, ex.LetDim) for term in post_order(function)):
        message = "Sizes of this program become known while it runs: no one program has it all."
        hint = "Compile it, and look at exe.segments; or give the values that decide (--input)."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    with paused():
        result = _Machine(of).call(function, [symbols(param) for param in function.params])
    body = packed(result)
    outside = _called_outside(body, of.definitions())
    if body is function.body and len(of.names) == 1 + len(outside):
        return of
    return module({**outside, of.main: attrs.evolve(function, body=body)}, of.main)


def _called_outside(body: ex.Expr, table: Mapping[Term, Definition]) -> dict[Defined, Definition]:
    """The kernels and externs that a resolved expression calls, by name."""
    found: dict[Defined, Definition] = {}
    for node in post_order(body):
        if isinstance(node, ex.Call) and isinstance(node.callee, ex.Var):
            called = table.get(node.callee)
            if isinstance(called, Kernel | Extern):
                found[node.callee] = called
    return found


def symbols(value: ex.Expr) -> Value:
    """A tensor, or the tuple of the components of an expression of tuple type."""
    if isinstance(of := type_of(value), TupleType):
        return tuple([symbols(ex.Project(value, i)) for i in range(len(of.items))])
    return value


def packed(value: Value) -> ex.Expr:
    """The expression of a value."""
    if isinstance(value, tuple):
        return ex.Tuple(tuple([packed(item) for item in value]))
    if isinstance(value, ResolvedClosure):
        raise CompilerBug("A function is left where a tensor was expected.")
    return value


def tensors_of(of: Type | None, value: Value) -> Iterator[tuple[Type, ex.Expr]]:
    """The tensors in an argument with the types that the parameter says of them."""
    stack = [(of, value)]
    while stack:
        declared, part = stack.pop()
        if isinstance(part, tuple):
            if isinstance(declared, TupleType):
                stack += reversed(list(zip(declared.items, part, strict=True)))
        elif declared is not None and not isinstance(part, ResolvedClosure):
            yield declared, part


@attrs.frozen(eq=False)
class ResolvedClosure:
    """A function with the activation it was made in."""

    function: ex.Function
    scope: CallFrame | None


@attrs.frozen(eq=False)
class CallFrame:
    """One run of a function: what each node is worth, and what its dims are."""

    outer: CallFrame | None
    sizes: Mapping[Term, int | Scalar]
    values: dict[Term, Value]


BEGIN: Final = 0
RESUME: Final = 1
END: Final = 2
Stack: TypeAlias = list[tuple[int, CallFrame, ex.Expr, Any]]
"""Pending work on nodes: start one, continue when its parts are known, or finish it when its body
is, with the frame and key."""


class _Machine:
    """A stack of nodes to visit, and of those to finish once their parts are known."""

    def __init__(self, of: Module) -> None:
        assert of.main is not None  # it was asked for
        self.table, self.main = of.definitions(), of.main
        self.globals: dict[Term, Value] = {}
        self.calls: dict[object, Value] = {}
        self.made = 0

    def call(self, function: ex.Function, args: Sequence[Value]) -> Value:
        """The result of the function on these arguments."""
        outermost, root = self.enter(self.closure(function), args, outermost=True)
        stack: Stack = [(BEGIN, outermost, root, None)]
        while stack:
            phase, scope, node, more = stack.pop()
            if phase == BEGIN:
                if node not in scope.values:
                    self.begin(node, scope, stack)
            elif phase == RESUME:
                self.resume(node, scope, stack)
            else:
                inner, body, key = more
                scope.values[node] = result = inner.values[body]
                if key is not None:
                    self.calls[key] = result
        return outermost.values[root]

    def begin(self, node: ex.Expr, scope: CallFrame, stack: Stack) -> None:
        """Give a node its value, or go on with it once its parts have theirs."""
        values = scope.values
        match node:
            case ex.Const():
                values[node] = node
            case ex.Var():
                values[node] = self.lookup(node, scope)
            case ex.Function():
                values[node] = ResolvedClosure(node, scope)
            case ex.Let(_, value, _) | ex.Match(value, _, _):
                stack.append((RESUME, scope, node, None))
                stack.append((BEGIN, scope, value, None))
            case ex.Call(callee, args, _):
                stack.append((RESUME, scope, node, None))
                stack.extend((BEGIN, scope, arg, None) for arg in args)
                stack.append((BEGIN, scope, callee, None))
            case ex.Apply() | ex.If() | ex.Tuple() | ex.Project():
                stack.append((RESUME, scope, node, None))
                for kid in node._children:
                    if isinstance(kid, ex.Expr):
                        stack.append((BEGIN, scope, kid, None))
            case ex.Literal() | ex.Constructor():
                raise CompilerBug(f"{node!r} is left in an inferred first-order program.")

    def resume(self, node: ex.Expr, scope: CallFrame, stack: Stack) -> None:
        """Give a node whose parts have values its own, or go on once its body has one."""
        values = scope.values
        match node:
            case ex.Let(var, value, body):
                values[var] = values[value]
                stack.append((END, scope, node, (scope, body, None)))
                stack.append((BEGIN, scope, body, None))
            case ex.Match(value, clauses, _):
                body = clauses[0].body
                _bind(clauses[0].pattern, values[value], values)
                stack.append((END, scope, node, (scope, body, None)))
                stack.append((BEGIN, scope, body, None))
            case ex.Call(callee, args, _):
                callee_value = values[callee]
                given = tuple([values[arg] for arg in args])
                key = (callee_value, given)
                if key in self.calls:
                    values[node] = self.calls[key]
                elif isinstance(callee_value, ex.Var):  # a kernel or an extern stays a call
                    self.count()
                    call = ex.Call(callee_value, tuple([packed(each) for each in given]))
                    values[node] = self.calls[key] = symbols(call)
                elif isinstance(callee_value, ResolvedClosure):
                    inner, body = self.enter(callee_value, given)
                    stack.append((END, scope, node, (inner, body, key)))
                    stack.append((BEGIN, inner, body, None))
                else:
                    raise CompilerBug(f"{callee!r} is called and is no function.")
            case _:
                values[node] = self.finish(node, scope)

    def enter(
        self, closure: ResolvedClosure, args: Sequence[Value], *, outermost: bool = False
    ) -> tuple[CallFrame, ex.Expr]:
        """A new activation, and the body to run in it; outer dims are unchanged."""
        self.count()
        function = closure.function
        outer = closure.scope
        sizes: Mapping[Term, int | Scalar] = {} if outer is None else outer.sizes
        if function.dims:
            rest = {term: n for term, n in sizes.items() if term not in function.dims}
            pairs = zip(function.params, args, strict=True)
            types = [
                (of, type_of(tensor))
                for param, arg in pairs
                for of, tensor in tensors_of(param.type, arg)
            ]
            numbers = {term: n for term, n in rest.items() if isinstance(n, int)}
            told = solve([e for pair in types for e in type_equations(*pair, {})], numbers)
            own: dict[Term, Scalar] = dict(zip(function.dims, function.dims, strict=True))
            own = own if outermost else {}
            sizes = {**own, **_open(types, function.dims), **rest, **told}
        values: dict[Term, Value] = dict(zip(function.params, args, strict=True))
        return CallFrame(outer, sizes, values), function.body

    def closure(self, function: ex.Function) -> ResolvedClosure:
        """A function of the module, each variable of it bound once."""
        return ResolvedClosure(rename_apart(function, self.table), None)

    def lookup(self, var: ex.Var, scope: CallFrame) -> Value:
        at: CallFrame | None = scope
        while at is not None:
            if var in at.values:
                return at.values[var]
            at = at.outer
        if var not in self.globals:
            if isinstance(defined := self.table.get(var), ex.Function):
                self.globals[var] = self.closure(defined)
            elif isinstance(defined, Kernel | Extern):
                self.globals[var] = var
            else:
                raise CompilerBug(f"The variable {var.name} is not bound.")
        return self.globals[var]

    def finish(self, node: ex.Expr, scope: CallFrame) -> Value:
        """A node whose parts are known."""
        values = scope.values
        match node:
            case ex.Tuple(items):
                return tuple([values[item] for item in items])
            case ex.Project(value, index):
                whole = values[value]
                if not isinstance(whole, tuple):
                    raise CompilerBug("A projection of what is no tuple is left.")
                return whole[index]
            case ex.If(condition, then, orelse):
                return choose(packed(values[condition]), values[then], values[orelse])
            case ex.Apply(op, args, attributes):
                self.count()
                known = attributes if not scope.sizes else _with_sizes(op, attributes, scope.sizes)
                return symbols(ex.Apply(op, tuple([packed(values[arg]) for arg in args]), known))
            case _:
                raise CompilerBug(f"{node!r} has no meaning here.")

    def count(self) -> None:
        self.made += 1
        # Calls of calls double at each level: where this many would be written out, and the first
        # ones were no repetition, the rest is not waited for.
        if self.made == SAMPLE:
            total = written_out(self.table, self.main)
            if total > HOPELESS:
                raise _too_big(f"{total} calls")
        if self.made > LIMIT:
            raise _too_big(f"more than {LIMIT}")


def written_out(table: Mapping[Term, Definition], main: Term) -> int:
    """The number of calls if each is expanded, including repetitions."""
    counts: dict[Term, int] = {}

    def called(name: Term) -> list[Term]:
        return [
            node.callee
            for node in post_order(table[name])
            if isinstance(node, ex.Call) and isinstance(table.get(node.callee), ex.Function)
        ]

    return fold_into(
        counts, main, called, lambda name: 1 + sum([counts[term] for term in called(name)])
    )


def _too_big(found: str) -> UnsupportedError:
    message = "The program is too big once every call is written out."
    expected = f"at most {LIMIT} calls and operators"
    return UnsupportedError(Diagnostic("unsupported", message, None, expected, found))


def choose(condition: ex.Expr, then: Value, orelse: Value) -> Value:
    """The result of an `If`; components equal in both branches are not selected."""
    pairs: list[tuple[ex.Expr, ex.Expr]] = []
    _differences(then, orelse, pairs)
    if not (pairs := list(dict.fromkeys(pairs))):
        return then
    if len(pairs) == 1:
        chosen: list[ex.Expr] = [ex.If(condition, *pairs[0])]
    else:
        left, right = zip(*pairs, strict=True)
        whole = ex.If(condition, ex.Tuple(left), ex.Tuple(right))
        chosen = [ex.Project(whole, i) for i in range(len(pairs))]
    return _merged(then, orelse, dict(zip(pairs, chosen, strict=True)))


def _differences(a: Value, b: Value, into: list[tuple[ex.Expr, ex.Expr]]) -> None:
    if isinstance(a, tuple) and isinstance(b, tuple):
        for x, y in zip(a, b, strict=True):
            _differences(x, y, into)
    elif a is not b:
        if isinstance(a, ResolvedClosure) or isinstance(b, ResolvedClosure):
            message = "A function is chosen by an `if` at run time."
            hint = "Choose between the results instead of between the functions."
            raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
        if not isinstance(a, ex.Expr) or not isinstance(b, ex.Expr):
            raise CompilerBug("The branches of an `if` differ in type.")
        into.append((a, b))


def _merged(a: Value, b: Value, chosen: Mapping[tuple[ex.Expr, ex.Expr], ex.Expr]) -> Value:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple([_merged(x, y, chosen) for x, y in zip(a, b, strict=True)])
    return a if a is b else chosen[a, b]  # type: ignore[index]  # no closure is left


def _bind(pattern: ex.Pattern, value: Value, values: dict[Term, Value]) -> None:
    match pattern:
        case ex.PAny():
            pass
        case ex.PVar(var):
            values[var] = value
        case ex.PTuple(items):
            if not isinstance(value, tuple):
                raise CompilerBug("A tuple pattern meets what is no tuple.")
            for item, inside in zip(items, value, strict=True):
                _bind(item, inside, values)
        case ex.PConstructor():
            raise CompilerBug("A constructor pattern is left in a first-order program.")


def _open(types: Sequence[tuple[Type, Type]], dims: Sequence[Term]) -> dict[Term, Scalar]:
    """The dims that stand alone where an argument has an open size."""
    found: dict[Term, Scalar] = {}
    stack = list(reversed(types))
    while stack:
        match stack.pop():
            case TensorType(shape, _), TensorType(other, _) if len(shape) == len(other):
                for dim, size in zip(shape, other, strict=True):
                    if dim in dims:
                        found.setdefault(dim, size)
            case TupleType(left), TupleType(right):
                stack += reversed(list(zip(left, right, strict=True)))
            case _:
                pass
    return found


def _with_sizes(name: str, attributes: ex.Attrs, sizes: Mapping[Term, int | Scalar]) -> ex.Attrs:
    """The attributes of an operator with a number for every dim, in canonical form."""
    if (record := find(name)) is None:
        raise CompilerBug(f"The operator {name} left the registry during compilation.")
    readers = {attribute.name: attribute.read for attribute in record.attributes}
    found = []
    for key, value in attributes:
        number = _numbers(value, sizes)
        found.append((key, value if number is value else readers[key](number)))
    return tuple(found)


def _numbers(value: Any, sizes: Mapping[Term, int | Scalar]) -> Any:
    """An attribute's value with every dim known; values are trees, so recursion is fine."""
    if isinstance(value, tuple):
        items = tuple([_numbers(item, sizes) for item in value])
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, Scalar) and not isinstance(value, Lit):
        if not free_vars(value) <= sizes.keys():
            message = "A size inside a function does not follow from its arguments."
            hint = "Let every dim stand alone on some axis of some parameter."
            raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
        terms: dict[Term, Term] = {d: dim(size) for d, size in sizes.items()}
        known = substitute(value, terms)
        return normal_dim(known)
    return value
