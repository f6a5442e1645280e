"""Instantiation: the right side of a rule with its holes filled.

A literal on the right side takes the dtype of its context, as in any program, so one rule serves
all dtypes. Binders of the right side capture nothing (`plica.rewrite.binder`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plica.core import Term, post_order, rebuild
from plica.ir.graph.expression import Apply, Expr, Literal, const
from plica.ir.graph.operator import find
from plica.ir.type import DType, TensorType, bool_, type_of
from plica.rewrite.pattern import Derived
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.binder import move

# Any: a hole holds a term, an attribute's value or a tuple of arguments.
Plan: TypeAlias = Callable[[dict[str, Any]], Any]


def right_side(left: Term, right: Term) -> Plan:
    """A function that instantiates the right side; returns None if a bound variable would
    escape."""
    if (moved := move(left, right)) is None:
        return plan(right)
    fill, build = moved.filled, plan(moved.template)

    def scoped(filling: dict[str, Any]) -> Any:
        whole = fill(filling)
        return None if whole is None else build(whole)

    return scoped


def late_right_side(left: Term, right: Term) -> Plan:
    """The same, made when the rule is first used: most rules of a table never are."""
    known: list[Plan] = []

    def filled(filling: dict[str, Any]) -> Any:
        if not known:
            known.append(right_side(left, right))
        return known[0](filling)

    return filled


def plan(template: Term) -> Plan:
    """A function that fills the holes of `template`; None where a `Derived` part gives None."""
    if type(template).hole:
        name: str = template.name  # type: ignore[attr-defined]  # every hole has a name
        return lambda filling: filling[name]
    order = post_order(template)

    def build(filling: dict[str, Any]) -> Any:
        made: dict[Term, Any] = {}
        for node in order:
            if type(node).hole:
                made[node] = filling[node.name]  # type: ignore[attr-defined]  # as above
            elif isinstance(node, Derived):
                given = [_value(arg, made) for arg in node.args]
                if (value := node.function.compute(*given)) is None:
                    return None
                made[node] = value
            elif node._children:
                made[node] = _filled(node, made)
            else:
                made[node] = node
        return made[template]

    return build


def settled(node: Apply) -> Apply:
    """An operator call whose literals have the dtype that its other arguments decide."""
    operator = find(node.op)
    group = range(len(node.args)) if operator is None or operator.like is None else operator.like
    of = next(
        (
            found.dtype
            for i in group
            if not isinstance(node.args[i], Literal)
            and isinstance(found := type_of(node.args[i]), TensorType)
        ),
        None,
    )
    if of is None:
        return node
    args: list[Expr] = [
        const(arg.value, of)
        if isinstance(arg, Literal) and i in group and is_value(arg.value, of)
        else arg
        for i, arg in enumerate(node.args)
    ]
    return Apply(node.op, tuple(args), node.attrs)


def is_value(number: bool | int | float, of: DType) -> bool:
    """Whether a literal can be a constant of that dtype: 0.5 is no integer, -1 is no u8."""
    if of.is_float:
        return not isinstance(number, bool)
    if of is bool_:
        return isinstance(number, bool)
    low, high = of.bounds
    return type(number) is int and low <= number <= high


def _filled(node: Term, made: dict[Term, Any]) -> Term:
    if not isinstance(node, Apply):
        return rebuild(node, tuple(made[kid] for kid in node._children))
    args: list[Any] = []
    for arg in node.args:
        new = made[arg]
        if isinstance(new, tuple):  # what a `Rest` stands for
            args.extend(new)
        else:
            args.append(new)
    attrs = tuple((name, _value(value, made)) for name, value in node.attrs)
    filled = Apply(node.op, tuple(args), attrs)
    return settled(filled) if any(isinstance(arg, Literal) for arg in args) else filled


def _value(value: Any, made: dict[Term, Any]) -> Any:
    """An attribute's value, with the holes inside it filled."""
    if isinstance(value, Term):
        return made[value]
    if isinstance(value, tuple):
        return tuple(_value(item, made) for item in value)
    return value
