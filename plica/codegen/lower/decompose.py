"""Decompose: operators that are defined by others are written out.

A definition is instantiated once per operator, attributes and argument types, inferred, resolved,
and from then on it is a piece of graph with holes for the arguments.

    before:  nn.softmax(x, axis=-1)
    after:   exp(x - max(x, …)) / sum(exp(x - max(x, …)), …)       (one shared node)

A size used as a value is taken from the inputs: an open size is a term over dims, each of which is
the extent of some input. So no value is computed only for its size.

    before:  size(tanh(x), axis=0)          x: Tensor[("n", 4), f32]
    after:   size(x, axis=0)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from plica.codegen.lower.graph_flattening import flatten_graph
from plica.core import (
    CompilerBug,
    Name,
    Term,
    free_vars,
    map_bottom_up,
    name_of,
    post_order,
    rebuild,
)
from plica.ir import op
from plica.ir.graph import Apply, Attrs, Expr, Function, Module, Project, Tuple, Var, const, module
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Max, Min, Mul, Scalar, ScalarVar, Sub
from plica.ir.op.relation import axes_of
from plica.ir.passes import form
from plica.ir.type import TensorType, TupleType, Type, i64, infer, known, product, type_of


def is_primitive(of: Module) -> bool:
    """Whether every operator of a module has a tensor definition."""
    records = [op.find(node.op) for node in post_order(of) if isinstance(node, Apply)]
    return all(record is not None and record.compute is not None for record in records)


form("primitive", is_primitive)


def decompose(of: Module) -> Module:
    """The resolved module reduced to operators with tensor definitions."""
    assert of.main is not None
    function = of.main_function()
    body = written_out(function.body, {})
    found = function if body is function.body else attrs.evolve(function, body=body)
    found = extents_of_inputs(found)
    return of if found is function else module({**dict(of.items()), of.main: found}, of.main)


def written_out(root: Expr, start: Mapping[Term, Expr]) -> Expr:
    """A resolved expression with its variables replaced and composite operators written out."""
    memo: dict[Term, Any] = dict(start)  # Any: expressions, and what they are made of
    for node in post_order(root):
        if node in memo:
            continue
        if not isinstance(node, Expr) or isinstance(node, Var):
            memo[node] = node
            continue
        new = rebuild(node, tuple([memo[kid] for kid in node._children]))
        if isinstance(new, Apply):
            new = _expanded(new)
        elif isinstance(new, Project) and isinstance(new.value, Tuple):
            new = new.value.items[new.index]
        memo[node] = new
    return memo[root]  # type: ignore[no-any-return]  # an expression gives an expression


def _expanded(node: Apply) -> Expr:
    if (record := op.find(node.op)) is None:
        raise CompilerBug(f"The operator {node.op} left the registry during compilation.")
    if record.decompose is None:
        return node
    types = tuple([type_of(arg) for arg in node.args])
    function = instance(node.op, node.attrs, types)
    return written_out(function.body, dict(zip(function.params, node.args, strict=True)))


@lru_cache(maxsize=4096)
def instance(name: str, attributes: Attrs, types: tuple[Type, ...]) -> Function:
    """The definition of a composite operator at these types, resolved and fully written out."""
    record = op.find(name)
    assert record is not None
    assert record.decompose is not None
    labels = ("x",) if record.variadic else record.inputs
    params = tuple(
        [Var(Name(labels[min(i, len(labels) - 1)], i), type) for i, type in enumerate(types)]
    )
    body = record.decompose(dict(attributes), *params)
    main = Var(Name(name.replace(".", "_")), None)
    free = {var: None for each in types for var in sorted(free_vars(each), key=name_of)}
    dims = [var for var in free if isinstance(var, ScalarVar)]
    whole = module({main: Function(tuple(dims), (), params, None, body)}, main)
    return decompose(flatten_graph(infer(whole))).main_function()


# --- sizes as values ------------------------------------------------------------------------------

_WORDS: Final[dict[type, str]] = {
    Add: "add", Sub: "subtract", Mul: "multiply", FloorDiv: "floor_divide", FloorMod: "mod",
    Min: "minimum", Max: "maximum",
}  # fmt: skip


def extents_of_inputs(of: Function) -> Function:
    """The function with sizes taken only from its parameters."""
    if not (where := _places(of)):
        return of

    def change(node: Term) -> Term:
        if not isinstance(node, Apply) or node.op != "size" or isinstance(node.args[0], Var):
            return node
        shape = type_of(node.args[0])
        assert isinstance(shape, TensorType)
        axes = axes_of("size", dict(node.attrs)["axis"], len(shape.shape))
        whole = product([shape.shape[axis] for axis in axes])
        return node if known(whole) is not None else _value(whole, where) or node

    body = map_bottom_up(change, of.body)
    return of if body is of.body else attrs.evolve(of, body=body)


def _places(of: Function) -> dict[ScalarVar, Expr]:
    """For each dim a value that is it: the size of an axis of an input."""
    found: dict[ScalarVar, Expr] = {}
    stack: list[Expr] = list(reversed(of.params))
    while stack:
        expr = stack.pop()
        if isinstance(kind := type_of(expr), TupleType):
            stack += [Project(expr, at) for at in reversed(range(len(kind.items)))]
        elif isinstance(kind, TensorType):
            for axis, size in enumerate(kind.shape):
                if isinstance(size, ScalarVar):
                    found.setdefault(size, Apply("size", (expr,), (("axis", (axis,)),)))
    return found


def _value(of: Scalar, where: dict[ScalarVar, Expr]) -> Expr | None:
    """A dim as a value, or None if a part of it is no extent of an input; dims are small."""
    match of:
        case Lit(value, _):
            return const(int(value), i64)
        case ScalarVar():
            return where.get(of)
        case Add(left, right) | Sub(left, right) | Mul(left, right) | FloorDiv(left, right):
            pass
        case FloorMod(left, right) | Min(left, right) | Max(left, right):
            pass
        case _:
            return None
    one, two = _value(left, where), _value(right, where)
    return None if one is None or two is None else Apply(_WORDS[type(of)], (one, two))
