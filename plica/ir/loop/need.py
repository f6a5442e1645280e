"""Needs: what a program with open sizes asks of them, so that each of its operators has a meaning.

A window must fit into its axis, a maximum is of something.  Where sizes are numbers a relation says
so; where they are open it is known which terms over the dims must not be negative, and those are
looked at when sizes come.

>>> from plica.core.name import Name
>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.graph.expression import Apply, Function, Var
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.text.show.type import show_dim
>>> from plica.ir.type.term import tensor
>>> n = dim_var("n")
>>> x, main = Var(Name("x"), tensor((n,), "f32")), Var(Name("main"), None)
>>> greatest = Apply("max", (x,), (("axis", (0,)), ("keepdims", False)))
>>> whole = infer(module({main: Function((n,), (), (x,), None, greatest)}, main))
>>> [show_dim(each, lambda v: str(v.name)) for each in needs(whole)]
['n-1']
"""

from __future__ import annotations

from plica.core.binding import free_vars
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Expr, Function, If, Match
from plica.ir.graph.module import Module
from plica.ir.loop.scalar import Scalar
from plica.ir.op import find
from plica.ir.op.relation import needs_of
from plica.ir.type.dim import Key, is_size, normal_dim, polynomial
from plica.ir.type.infer import type_of


def needs(of: Module) -> tuple[Scalar, ...]:
    """The terms over the dims of an inferred module that must not be negative.

    What is computed in a branch only is not asked for: it may be there for other sizes.
    """
    main = of.main_function()
    return needs_in(main.body, frozenset(main.dims))


def needs_in(body: Expr, dims: frozenset[Term]) -> tuple[Scalar, ...]:
    """The same of an expression: terms over these dims."""
    found: dict[frozenset[tuple[Key, int]], Scalar] = {}
    for node in _always(body):
        record = find(node.op)
        if record is None or not dims:
            continue
        types = [type_of(each) for each in node.args]
        for each in needs_of(record.relation, dict(node.attrs), *types):
            least = normal_dim(each)
            if free_vars(least) <= dims and not is_size(least):
                key = frozenset((k, count) for k, (_, count) in polynomial(least).items())
                found.setdefault(key, least)
    return tuple(found.values())


def _always(body: Expr) -> list[Apply]:
    """The operators that a program comes to whatever its values are."""
    found: list[Apply] = []
    seen: set[Term] = {body}
    stack: list[Term] = [body]
    while stack:
        if isinstance(node := stack.pop(), Apply):
            found.append(node)
        inside: tuple[Term, ...] = node._children
        if isinstance(node, If):
            inside = (node.condition,)
        elif isinstance(node, Function | Match):
            inside = ()
        for each in inside:
            if isinstance(each, Expr) and each not in seen:
                seen.add(each)
                stack.append(each)
    return found
