"""Beta: the body of a function at the arguments of a call.

A call of a polymorphic function says its type arguments; its dims follow from the types of the
arguments, as in inference.

>>> from plica.core.name import Name
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.graph.expression import const
>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> x = Var(Name("x"), tensor((n,), "f32"))
>>> twice = Function((n,), (), (x,), x.type, x + x)
>>> instantiation(twice, (const([1.0, 2.0, 3.0], "f32"),), ())[n]
Lit(3, DType('i64'))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plica.core import CompilerBug, Term, free_vars, rename, substitute
from plica.ir.graph import Apply, Attrs, Call, Expr, Function, Let, Mismatch, Var, find
from plica.ir.loop.scalar import Scalar
from plica.ir.type import Type, normal_dim, type_of
from plica.ir.type.unify import Solver
from plica.ir.type.unknown import is_open
from plica.rewrite.graph.walk import NameSupply, map_expressions


def instantiation(
    function: Function, args: Sequence[Expr], types: tuple[Type, ...]
) -> dict[Term, Term] | None:
    """The type and dim arguments of a function at a call, or None if the arguments do not determine
    them."""
    mapping: dict[Term, Term] = dict(zip(function.types, types, strict=True))
    if not function.dims:
        return mapping
    solver = Solver()
    unknown: dict[Term, Scalar] = {dim: solver.fresh_dim() for dim in function.dims}
    inside: dict[Term, Term] = {**mapping, **unknown}
    for param, arg in zip(function.params, args, strict=True):
        assert param.type is not None
        wanted = substitute(param.type, inside)
        if solver.unify(type_of(arg), wanted) is not None:
            return None
    for term, size in unknown.items():
        scalar = solver.size(size)
        if any(is_open(part) for part in free_vars(scalar)):
            return None
        mapping[term] = scalar
    return mapping


def beta(call: Call) -> Expr | None:
    """The body of a called function after lets of its arguments, or None."""
    function = call.callee
    if not isinstance(function, Function) or len(function.params) != len(call.args):
        return None
    if (mapping := instantiation(function, call.args, call.types)) is None:
        return None
    supply = NameSupply(call)
    lets: list[tuple[Var, Expr]] = []
    for param, arg in zip(function.params, call.args, strict=True):
        name = rename(param, supply.name(param.name.hint))
        mapping[param] = new = at_types(name, mapping)
        lets.append((new, arg))
    result = _at_dims(substitute(function.body, mapping), mapping)
    for var, value in reversed(lets):
        result = Let(var, value, result)
    return result


def at_types(var: Var, mapping: Mapping[Term, Term]) -> Var:
    """A variable with its type instantiated."""
    if var.type is None or not mapping:
        return var
    return Var(var.name, substitute(var.type, mapping))


def at_sizes(node: Apply, mapping: Mapping[Term, Term]) -> Attrs:
    """The attributes of an operator call at other dims, in canonical form."""
    rest = node._children[len(node.args) :]
    if not mapping or all(free_vars(term).isdisjoint(mapping) for term in rest):
        return node.attrs
    return canonical(node.op, tuple([(name, _filled(v, mapping)) for name, v in node.attrs]))


def canonical(op: str, attributes: Attrs) -> Attrs:
    """Attributes in the form in which the operator's record reads them."""
    record = find(op)
    readers = {attribute.name: attribute.read for attribute in record.attributes} if record else {}
    found = []
    for name, value in attributes:
        if isinstance(new := readers[name](value), Mismatch):
            raise CompilerBug(f"{op} does not accept its own {name}: {new.message}")
        found.append((name, new))
    return tuple(found)


def _at_dims(body: Expr, mapping: Mapping[Term, Term]) -> Expr:
    """A body in which dims were replaced, with all attributes in canonical form again."""
    if not any(isinstance(term, Scalar) for term in mapping):
        return body

    def settle(node: Expr) -> Expr:
        if isinstance(node, Apply) and len(node._children) > len(node.args):
            return Apply(node.op, node.args, canonical(node.op, node.attrs))
        return node

    return map_expressions(settle, body)


def _filled(value: Any, mapping: Mapping[Term, Term]) -> Any:
    if isinstance(value, Scalar):
        return normal_dim(substitute(value, mapping))
    if isinstance(value, Term):
        return substitute(value, mapping)
    if isinstance(value, tuple):
        return tuple([_filled(item, mapping) for item in value])
    return value
