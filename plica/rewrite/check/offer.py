"""Test inputs of a rule: instances of its left side, and examples of its author."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plica.core import RuleRefused, free_vars, post_order
from plica.ir.graph import Expr, Module, Var
from plica.ir.type import TensorType, infer, known
from plica.rewrite.check.data import Choose, array
from plica.rewrite.check.instance import Instance, instance
from plica.rewrite.pattern import bound_names
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic


def offered(
    rule: Rule, choose: Choose, *, data: bool = True, rounds: bool = False
) -> Instance | None:
    """An instance of a rule, or None; examples alternate with generated instances."""
    if rule.examples and (rule.instances is None or choose((True, False))):
        places = [each for example in rule.examples for each in occurrences(rule, example)]
        return _instance(choose(places), choose, data) if places else None
    if rule.instances is None:
        return instance(rule.left, choose, data=data, rounds=rounds)
    given: Any = rule.instances(choose)  # Any: whatever a user gives
    if isinstance(given, Expr):
        return _instance(given, choose, data)
    if given is None:
        return None
    if not isinstance(given, Mapping) or not set(given) <= bound_names(rule.left):
        message = f"The instances of {rule.name} do not fill its holes."
        expected = f"values for some of {', '.join(sorted(bound_names(rule.left)))}, or a term"
        raise RuleRefused(Diagnostic("bad-rule", message, rule.place, expected, repr(given)))
    return instance(rule.left, choose, data=data, given=given, rounds=rounds)


def occurrences(rule: Rule, example: Module | Expr) -> list[Expr]:
    """The terms of a program at which a rule applies, the first first; of known sizes only."""
    values = infer(example).values if isinstance(example, Module) else (example,)
    nodes = dict.fromkeys(node for value in values for node in post_order(value))
    return [
        each for each in nodes
        if isinstance(each, Expr) and _is_closed(each) and rule.at(each) is not None
    ]  # fmt: skip


def _is_closed(of: Expr) -> bool:
    """Whether all free symbols of a term can be given arrays."""
    return all(
        isinstance(var, Var)
        and isinstance(var.type, TensorType)
        and all(known(size) is not None for size in var.type.shape)
        for var in free_vars(of)
    )


def variables_of(term: Expr) -> tuple[Var, ...]:
    """The free variables of a term, in order of occurrence."""
    free = free_vars(term)
    return tuple(
        each for each in dict.fromkeys(post_order(term)) if isinstance(each, Var) and each in free
    )


def _instance(term: Expr, choose: Choose, data: bool) -> Instance:
    variables = variables_of(term)
    inputs = tuple((each, array(each.type, choose)) for each in variables) if data else ()
    return Instance(term, inputs, variables)
