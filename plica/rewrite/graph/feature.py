"""Features and dependences of programs: what a module uses, what depends on what, parts of it.

    features(module)             the constructs of the graph language that occur, by name
    dependences(function)        which expression depends on which, in topological order
    part(module, at)             a module that computes one intermediate expression
    labels(function)             a label for each expression: the digest of what it computes

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var, Tuple
>>> from plica.ir.graph.module import main_module
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> whole = infer(main_module(Function((), (), (x,), None, Tuple(((x + x) * x, x)))))
>>> sorted(features(whole))
['operator', 'tuple', 'variable']
>>> [each.op for each in numbered(whole) if isinstance(each, ex.Apply)]
['add', 'multiply']
>>> part(whole, 1).main_function().body.op
'add'

Work: the number of innermost iterations of an operator, from its tensor definition.

Sizes that are not known have no number of steps: the answer is None.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

from plica.core import Name, Term, digest, fold, free_vars, post_order
from plica.ir.graph import Expr, Function, Module, Var, expression as ex, module as module_of
from plica.ir.graph.expression import Apply, Attrs
from plica.ir.loop import Buffer, Compute, Reduce, Scalar
from plica.ir.op import find
from plica.ir.type import FuncType, TensorType, Type, infer, infer_expr, shape_of, type_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import expressions, recursive, users
from plica.runtime.error import Diagnostic, InputError

Feature: TypeAlias = Literal[
    "variable", "constant", "let", "measured dim", "if", "function", "call", "operator", "tuple",
    "projection", "data type", "match", "higher order", "recursion", "polymorphism", "open size",
]  # fmt: skip

_BY_CLASS: Final[dict[type, Feature]] = {
    ex.Var: "variable", ex.Const: "constant", ex.Literal: "constant", ex.Let: "let",
    ex.LetDim: "measured dim", ex.If: "if", ex.Call: "call", ex.Apply: "operator",
    ex.Tuple: "tuple", ex.Project: "projection", ex.Constructor: "data type", ex.Match: "match",
}  # fmt: skip


def features(module: Module) -> frozenset[Feature]:
    """The constructs that the functions of a module use.

    `function` is one within another; `higher order` a parameter or result that is a function.
    """
    known, literal_types = infer(module), set[Feature]()
    tops = [function for _, function in known.functions()]
    if recursive(known):
        literal_types.add("recursion")
    for node in expressions(*tops):
        if (feature := _BY_CLASS.get(type(node))) is not None:
            literal_types.add(feature)
        elif isinstance(node, Function):
            literal_types |= _of_function(node, within=node not in tops)
        if isinstance(node, ex.Let) and node.var in free_vars(node.value):
            literal_types.add("recursion")
    return frozenset(literal_types)


def _of_function(of: Function, *, within: bool) -> set[Feature]:
    literal_types = set[Feature]({"function"} if within else ())
    if of.types:
        literal_types.add("polymorphism")
    if of.dims:
        literal_types.add("open size")
    signature = [param.type for param in of.params] + [of.ret]
    kinds = [type(one) for type_ in signature if type_ is not None for one in post_order(type_)]
    if FuncType in kinds:
        literal_types.add("higher order")
    return literal_types


@frozen(eq=False, slots=False)  # cached properties
class Dependences:
    """The expressions of a program, each after its parts."""

    nodes: tuple[Expr, ...]

    @cached_property
    def users(self) -> dict[Expr, tuple[Expr, ...]]:
        """The expressions that each is a direct part of."""
        return users(*self.nodes[-1:])

    def needs(self, node: Expr) -> frozenset[Expr]:
        """All expressions that one depends on, itself among them."""
        return frozenset(expressions(node))

    def reaches(self, node: Expr) -> frozenset[Expr]:
        """All expressions that depend on one, itself among them."""
        exprs, stack = {node}, [node]
        while stack:
            for expr in self.users[stack.pop()]:
                if expr not in exprs:
                    exprs.add(expr)
                    stack.append(expr)
        return frozenset(exprs)


def dependences(of: Expr) -> Dependences:
    """The dependence graph of an expression, a function for example."""
    return Dependences(tuple(expressions(of)))


def numbered(module: Module) -> tuple[Expr, ...]:
    """The expressions of the main function in graph normal form, each after its parts."""
    return tuple(expressions(to_dataflow(infer(module)).main_function().body))


def part(module: Module, at: int | Expr) -> Module:
    """A module that computes an intermediate expression of the main function, given by itself or by
    its number in `numbered`; it keeps the parameters, and the functions that are called."""
    plain = to_dataflow(infer(module))
    nodes, main = tuple(expressions(plain.main_function().body)), plain.main_function()
    if isinstance(at, int):
        if not 0 <= at < len(nodes):
            raise _no_part(f"There is no expression {at}.", f"0 to {len(nodes) - 1}", at)
        node = nodes[at]
    elif (node := at) not in nodes:
        message = "The main function in graph normal form has no such expression."
        raise _no_part(message, "one of numbered(module)", type(at).__name__)
    bound = [
        var for var in free_vars(node)
        if isinstance(var, Var) and var not in main.params and var not in plain.names
    ]  # fmt: skip
    if bound:
        message = "The expression depends on variables that are bound inside the main function."
        names = ", ".join(str(var.name) for var in bound)
        raise _no_part(message, "parameters and definitions alone", names)
    assert plain.main is not None
    name = Var(plain.main.name, None)  # of another type
    rest = {each: value for each, value in plain.items() if each is not plain.main}
    return infer(module_of({**rest, name: evolve(main, body=node, ret=None)}, name))


def _no_part(message: str, expected: str, found: object) -> InputError:
    hint = "numbered(module) lists them: parts first."
    return InputError(Diagnostic("input-unknown", message, None, expected, str(found), hint))


def labels(of: Expr) -> dict[Expr, str]:
    """A label for each expression of another: equal where the same is computed, whatever names and
    places, and on every machine.  What an expression reads counts by its type."""
    return {node: label(node) for node in expressions(of) if not isinstance(node, Function)}


def label(node: Expr) -> str:
    """The digest of an expression as a function of what it reads."""
    read = tuple([var for var in free_vars(node) if isinstance(var, Var)])
    order = {term: at for at, term in enumerate(post_order(node))}
    params = sorted(read, key=lambda each: order.get(each, -1))
    return digest(Function((), (), tuple(params), None, node))


# --- work --------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def steps(op: str, attributes: Attrs, types: tuple[Type, ...]) -> int | None:
    """The steps of an operator at arguments of these types."""
    record = find(op)
    tensors = [each for each in types if isinstance(each, TensorType)]
    if record is None or len(tensors) < len(types):
        return None
    if record.decompose is not None:
        params = [Var(Name("x", i), each) for i, each in enumerate(types)]
        body = infer_expr(record.decompose(dict(attributes), *params))
        return _total(
            [
                steps(each.op, each.attrs, tuple([type_of(arg) for arg in each.args]))
                for each in expressions(body)
                if isinstance(each, Apply)
            ]
        )
    assert record.compute is not None  # an operator has one or the other
    buffers = [Buffer(Name("x", i), tensor.shape, tensor.dtype) for i, tensor in enumerate(tensors)]
    made = record.compute(dict(attributes), *buffers)
    return _total([steps_of(each) for each in ((made,) if isinstance(made, Compute) else made)])


def steps_of(compute: Compute) -> int | None:
    """The elements of a tensor expression, times the boxes it reduces over, one in the other."""

    def algebra(node: Term, kids: tuple[int | None, ...]) -> int | None:
        if None in kids:
            return None
        inside = max([child for child in kids if child is not None], default=1)
        return _times(node.extents, inside) if isinstance(node, Reduce) else inside

    return _times(compute.shape, fold(algebra, compute.body))


def _times(shape: tuple[Scalar, ...], inside: int | None) -> int | None:
    sizes = shape_of(shape, {})
    return None if sizes is None or inside is None else prod(sizes) * inside


def _total(parts: list[int | None]) -> int | None:
    found = [each for each in parts if each is not None]
    return sum(found) if len(found) == len(parts) else None
