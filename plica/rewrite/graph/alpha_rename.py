"""Renaming: every binder in a function gets unique variables, including dims and type variables.

Terms share by identity, so one node may stand under two binders of one variable and mean two
things.  A pass that moves nodes first makes them two nodes.  Three things are bound apart beyond
what `rename_apart` does: dims and type variables of functions, the variables of the clauses of one
match, and a recursive function inside itself: there it is called by another variable, its *self*.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Tuple, const
>>> x = Var(Name("x"), None)
>>> one = Function((), (), (x,), None, x)
>>> two = Function((), (), (x,), None, x + 1)
>>> made = alpha_renamed(Function((), (), (), None, Tuple((one, two))), ()).body
>>> made.items[0].params[0] is made.items[1].params[0]
False
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

import attrs

from plica.core import Term, free_vars, rebuild, rename, substitute, variables_of
from plica.ir.graph.expression import Clause, Expr, Function, Let, Match, Var
from plica.ir.graph.unique_binder import rename_apart
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands


def alpha_renamed(function: Function, outer: Container[Any]) -> Function:
    """The function up to the names of bound variables; `outer` are the names of definitions."""
    nodes = expressions(function)
    inside = any(node.__class__ in _BINDERS for node in nodes if node is not function)
    if not inside and not any(param in outer for param in function.params):
        return function  # dataflow, which is most of a model, has no other binder
    apart = rename_apart(function, outer)
    if apart is not function:
        nodes = expressions(apart)
    while twice := _bound_twice(nodes):
        # A binder that two clauses or two functions shared is two now: its variables again.
        apart = rename_apart(_with_own(apart, nodes, twice), outer)
        nodes = expressions(apart)
    return apart


def _with_own(
    function: Function, nodes: list[Expr], twice: dict[Expr, tuple[Any, ...]]
) -> Function:
    """The function with new dims, type variables and variables of clauses where they are shared."""
    supply = NameSupply(function)
    memo: dict[Expr, Expr] = {}
    for node in nodes:
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        fresh = {each: rename(each, supply.name(each.name.hint)) for each in twice.get(node, ())}
        if isinstance(new, Function) and fresh:
            new = rebuild(new, tuple([substitute(kid, fresh) for kid in new._children]))
        elif isinstance(new, Match) and fresh:
            new = attrs.evolve(new, clauses=_clauses(new.clauses, set(fresh), supply))
        memo[node] = new
    made = memo[function]
    assert isinstance(made, Function)
    return made


def with_selves(function: Function, outer: Container[Any]) -> tuple[Function, dict[Var, Var]]:
    """The function with self variables, and the variable of each."""
    function = alpha_renamed(function, outer)
    selves: dict[Var, Var] = {}
    nodes = expressions(function)
    if not any(is_recursive(node) for node in nodes):
        return function, selves
    supply = NameSupply(function)
    memo: dict[Expr, Expr] = {}
    for node in nodes:
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if isinstance(new, Let) and is_recursive(new):
            itself = rename(new.var, supply.name(new.var.name.hint))
            selves[itself] = new.var
            value = substitute(new.value, {new.var: itself})
            new = Let(new.var, value, new.body)
        memo[node] = new
    made = memo[function]
    assert isinstance(made, Function)
    return made, selves


def is_recursive(node: Expr) -> bool:
    """Whether a node lets a function that calls itself."""
    return (
        isinstance(node, Let)
        and isinstance(node.value, Function)
        and node.var in free_vars(node.value)
    )


_BINDERS: Final = frozenset((Let, Function, Match))


def _bound_twice(nodes: list[Expr]) -> dict[Expr, tuple[Any, ...]]:
    """For each node, the variables it binds that another node binds, too."""
    binder: dict[Term, Expr] = {}
    found: dict[Expr, tuple[Any, ...]] = {}
    for node in nodes:
        if isinstance(node, Function):
            own = (*node.dims, *node.types)
            twice = tuple([term for term in own if binder.setdefault(term, node) is not node])
            if twice:
                found[node] = twice
        elif isinstance(node, Match) and len(node.clauses) > 1:
            seen: set[Term] = set()
            again: dict[Term, None] = {}
            for clause in node.clauses:
                bound = variables_of(clause.pattern)
                again.update((term, None) for term in bound if term in seen)
                seen.update(bound)
            if again:
                found[node] = tuple(again)
    return found


def _clauses(
    clauses: tuple[Clause, ...], shared: set[Term], supply: NameSupply
) -> tuple[Clause, ...]:
    """The clauses with shared variables renamed in all but the first that binds them."""
    seen: set[Term] = set()
    made: list[Clause] = []
    for clause in clauses:
        fresh: dict[Term, Term] = {}
        for each in variables_of(clause.pattern):
            if each in shared and each in seen:
                fresh[each] = rename(each, supply.name(each.name.hint))  # type: ignore[attr-defined]  # a variable has a name
            seen.add(each)
        kids = tuple([substitute(kid, fresh) for kid in clause._children])
        made.append(rebuild(clause, kids))
    return tuple(made)
