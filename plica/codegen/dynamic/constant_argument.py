"""Known arguments: a parameter that is the same constant in every call becomes that constant.

    before:  def encode(t, w): ... encode(left, w) ...
             def main(t): return encode(t, WEIGHTS)
    after:   def encode(t): ... encode(left) ...

Kernels pack constants in advance, so weights that functions pass to each other should not be
arguments. A parameter is known if each call passes the same constant, or a known parameter: a
recursive function passes its own. Only calls of definitions count, which are all calls after
defunctionalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from plica.core import Term, substitute
from plica.ir.graph.expression import Call, Const, Expr, Function, Tuple, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.type import FuncType, infer, type_of
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.walk import expressions, map_expressions

Known: TypeAlias = "Expr | bool | None"
"""The constant a parameter is in every call; None if there is no call, False if it varies."""


def place_known(module: Module) -> Module:
    """The module of first-order functions without parameters that are known."""
    functions = dict(module.functions())
    calls = [
        (name, node)
        for name, function in functions.items()
        for node in expressions(function.body)
        if isinstance(node, Call) and node.callee in functions
    ]
    known: dict[tuple[Var, int], Known] = {}
    where = {
        (name, param): at
        for name, function in functions.items()
        for at, param in enumerate(function.params)
    }
    assert module.main is not None
    for at in range(len(functions[module.main].params)):
        known[module.main, at] = False
    changed = True
    while changed:
        changed = False
        for caller, node in calls:
            assert isinstance(node.callee, Var)
            for at, arg in enumerate(node.args):
                given: Known = arg if is_constant(arg) else False
                if isinstance(arg, Var) and (caller, arg) in where:
                    given = known.get((caller, where[caller, arg]))
                before = known.get((node.callee, at))
                after = _both(before, given)
                if after is not before:
                    known[node.callee, at] = after
                    changed = True
    found: dict[Var, dict[Term, Term]] = {}
    for (name, at), value in known.items():
        if isinstance(value, Expr):
            found.setdefault(name, {})[functions[name].params[at]] = value
    if not found:
        return module
    return remove_dead(infer(_without(module, found)))


def _without(module: Module, found: Mapping[Var, Mapping[Term, Term]]) -> Module:
    """The module with known parameters substituted and removed."""
    names = {name: name for name, _ in module.functions()}
    kept: dict[Expr, list[int]] = {}
    for name, function in module.functions():
        if name in found:
            kept[name] = [n for n, p in enumerate(function.params) if p not in found[name]]
            types = tuple([type_of(function.params[each]) for each in kept[name]])
            of = FuncType(function.dims, function.types, types, type_of(function.body))
            names[name] = Var(name.name, of)

    def called(node: Expr) -> Expr:
        if not isinstance(node, Call) or node.callee not in kept:
            return node
        assert isinstance(node.callee, Var)
        args = tuple([node.args[each] for each in kept[node.callee]])
        return Call(names[node.callee], args, node.types)

    made: dict[Defined, Definition] = {}
    for defined, value in module.items():
        if not isinstance(defined, Var) or not isinstance(value, Function):
            made[defined] = value
            continue
        body: Any = substitute(value.body, found.get(defined, {}))
        stay = kept.get(defined, range(len(value.params)))
        params = tuple([value.params[each] for each in stay])
        new = attrs.evolve(value, params=params, body=map_expressions(called, body))
        made[names[defined]] = new
    return module_of(made, module.main)


def is_constant(of: Expr) -> bool:
    """Whether an expression is a constant, or a tuple of such."""
    stack = [of]
    while stack:
        if isinstance(each := stack.pop(), Tuple):
            stack.extend(each.items)
        elif not isinstance(each, Const):
            return False
    return True


def _both(one: Known, other: Known) -> Known:
    """The combined knowledge about a parameter from two calls."""
    if one is None or other is None:
        return other if one is None else one
    return one if one is other else False
