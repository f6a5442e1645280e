"""Eta: `lambda x: f(x)` and `f` are equal; each pass rewrites in one direction.

`eta_expand` turns every constructor and definition used as a value into a function with parameters,
as some passes and targets require. `eta_reduce` removes functions that only pass on their
arguments.

    before:  map(Cons, xs)                  after expansion:  map(lambda a, b: Cons(a, b), xs)

Laws: `eta_expand(eta_expand(m)) is eta_expand(m)`, and the same for `eta_reduce`.
"""

from __future__ import annotations

import attrs

from plica.core import Term, rename, substitute
from plica.ir.graph.expression import Call, Constructor, Expr, Function, Let, Var
from plica.ir.graph.module import Module
from plica.ir.type import FuncType, infer, type_of
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.known import eta_reduced
from plica.rewrite.graph.walk import NameSupply, expressions, map_functions, operands, with_operands


def eta_expand(module: Module) -> Module:
    """The module in which constructors and definitions stand only where they are called."""
    known = infer(module)
    table = known.definitions()
    supply = NameSupply(*known.values)
    known_as: dict[Expr, Expr] = {}

    def expanded(value: Expr) -> Expr:
        if value not in known_as:
            known_as[value] = _expanded(value, supply)
        return known_as[value]

    def is_value(node: Expr) -> bool:
        return isinstance(node, Constructor) or node in table

    def rewrite(_: Var, given: Function) -> Function:
        function = alpha_renamed(given, table)  # no variable of its own is called like a definition
        memo: dict[Expr, Expr] = {}
        for node in expressions(function):
            parts = operands(node)
            new = [expanded(part) if is_value(part) else memo[part] for part in parts]
            if isinstance(node, Call) and is_value(parts[0]):
                new[0] = parts[0]
            memo[node] = with_operands(node, tuple(new))
        made = memo[function]
        assert isinstance(made, Function)
        return made if made is not function else given

    return map_functions(known, rewrite)


def eta_reduce(module: Module) -> Module:
    """The module without functions that only call another with their own parameters."""
    known = infer(module)

    def rewrite(_: Var, function: Function) -> Function:
        memo: dict[Expr, Expr] = {}
        for node in expressions(function.body):
            new = with_operands(node, tuple([memo[part] for part in operands(node)]))
            if isinstance(node, Let) and isinstance(new, Let) and new.value is new.var:
                new = Let(new.var, node.value, new.body)  # a function that only calls itself
            if isinstance(new, Function):
                new = eta_reduced(new) or new
            memo[node] = new
        return attrs.evolve(function, body=memo[function.body])

    return map_functions(known, rewrite)


def _expanded(value: Expr, supply: NameSupply) -> Expr:
    of = type_of(value)
    if not isinstance(of, FuncType):
        return value
    dims = tuple([rename(dim, supply.name(dim.name.hint)) for dim in of.dims])
    types = tuple([rename(type_var, supply.name(type_var.name.hint)) for type_var in of.types])
    mapping: dict[Term, Term] = dict(zip((*of.dims, *of.types), (*dims, *types), strict=True))
    params = tuple([Var(supply.name("x"), substitute(param, mapping)) for param in of.params])
    ret = substitute(of.ret, mapping)
    return Function(dims, types, params, ret, Call(value, params, types))
