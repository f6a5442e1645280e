"""Instantiation: the right side of a rule with its holes filled.

A literal on the right side takes the dtype its neighbours decide, as in any program, so one rule
serves all dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plica.core.fold import post_order
from plica.core.term import Term, rebuild
from plica.ir.graph import Apply, Literal
from plica.ir.infer import elaborate

Plan: TypeAlias = Callable[[dict[str, Any]], Term]  # Any: a hole holds a term or an attribute


def plan(template: Term) -> Plan:
    """A function that fills the holes of `template`."""
    order = post_order(template)
    if type(template).hole:
        name = template.name  # type: ignore[attr-defined]  # every hole has a name
        return lambda filling: filling[name]  # type: ignore[no-any-return]  # a term, by typing

    def build(filling: dict[str, Any]) -> Term:
        made: dict[Term, Any] = {}
        for node in order:
            if type(node).hole:
                made[node] = filling[node.name]  # type: ignore[attr-defined]
            elif node._children:
                made[node] = _filled(node, made)
            else:
                made[node] = node
        return made[template]  # type: ignore[no-any-return]

    return build


def _filled(node: Term, made: dict[Term, Any]) -> Term:
    if isinstance(node, Apply):
        args: list[Any] = []
        for arg in node.args:
            new = made[arg]
            args.extend(new) if isinstance(new, tuple) else args.append(new)
        attrs = tuple((name, _value(value, made)) for name, value in node.attrs)
        new = Apply(node.op, tuple(args), attrs)
        return elaborate(new) if any(isinstance(arg, Literal) for arg in args) else new
    return rebuild(node, tuple(made[kid] for kid in node._children))


def _value(value: Any, made: dict[Term, Any]) -> Any:
    """An attribute's value, with the holes inside it filled."""
    if isinstance(value, Term):
        return made[value]
    if isinstance(value, tuple):
        return tuple(_value(item, made) for item in value)
    return value
