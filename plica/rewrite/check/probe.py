"""A quick look at a rule when it is made: a few instances of its left side, and their types.

No values are computed here, and no test library is needed, so importing a pack stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from plica.core import IllTyped, Name, RuleFailed, RuleRefused, Term, free_vars, post_order
from plica.core.extension import said
from plica.ir.graph import Module, Var
from plica.ir.graph.expression import Apply, Expr
from plica.ir.graph.operator import find
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type import TensorType, bool_, infer, known, same_type, type_of
from plica.rewrite.check.data import Choose, array, seeded
from plica.rewrite.check.instance import Instance, instance
from plica.rewrite.check.report import closed, text
from plica.rewrite.instantiate import plan
from plica.rewrite.pattern import IndexHole, alternatives, bound_names
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic

MAX_TRIES: Final = 3


def probe(rule: Rule) -> str | None:
    """Why the sides of a rule cannot have the same type, or None.

    Raises `RuleRefused` where the rule fails on an instance.
    """
    if isinstance(rule.left, Scalar):
        return _index_probe(rule, rule.left)
    choose = seeded(0)
    for _ in range(MAX_TRIES):
        made: Instance | None = None
        try:
            made = offered(rule, choose, data=False)
            after = None if made is None else rule.at(made.term)
        except RuleFailed as failed:
            shown = "" if made is None else text(closed(made.term, made))
            raise failing(rule, failed, shown) from failed.__cause__
        except RuleRefused as refused:
            raise _named(rule, refused) from None
        if made is not None and after is not None:
            wrong = types_differ(made.term, after)
            if wrong is not None:
                return wrong
    return None


def _index_probe(rule: Rule, left: Scalar) -> str | None:
    """The same for index terms: holes are variables, or numbers where only those fill them."""
    if rule.when is None and not rule.computed and not any(map(_is_picky, post_order(left))):
        return None
    for pattern in alternatives(left):
        for number in (1, 2, 3, 0, -1):
            holes = [node for node in post_order(pattern) if isinstance(node, IndexHole)]
            filling = {of.name: _scalar(of, number) for of in holes}
            try:
                after = rule.at(plan(pattern)(filling))
            except RuleFailed as failed:
                shown = ", ".join(f"{name} = {value!r}" for name, value in filling.items())
                raise failing(rule, failed, shown) from failed.__cause__
            except RuleRefused as refused:
                raise _named(rule, refused) from None
            if after is not None and not isinstance(after, Scalar):
                return f"the right side is no index term but {after!r}"
    return None


def _named(rule: Rule, refused: RuleRefused) -> RuleRefused:
    """The refusal with its rule's name, which a predicate does not know."""
    first, *rest = refused.diagnostics
    if first.place is not None:
        return refused
    message = f"In {rule.name}: {first.message}"
    return RuleRefused(replace(first, message=message, place=rule.place), *rest)


def _is_picky(node: Term) -> bool:
    return isinstance(node, IndexHole) and node.constraint.when is not None


def _scalar(of: IndexHole, number: int) -> Scalar:
    if not of.constraint.constant:
        return ScalarVar(Name(of.name), of.dtype)
    return Lit(number > 1 if of.dtype is bool_ else number, of.dtype)


def failing(rule: Rule, failed: RuleFailed, shown: str) -> RuleRefused:
    """The refusal of a rule whose guard, predicate or right side fails on an instance."""
    (first,) = failed.diagnostics
    cause = failed.__cause__
    found = (first.found or "") if cause is None else said(cause)
    message = f"{rule.name} fails on an instance of its left side."
    told = found + (f"\non {shown}" if shown else "")
    return RuleRefused(replace(first, message=message, place=rule.place, found=told))


def ill_formed(term: object) -> str | None:
    """Which operator of a term has operands that are no tensors, or an attribute it does not take.

    A right side is made of terms and settings that were matched, which nobody has read again. What
    is no term is refused by its type.
    """
    if not isinstance(term, Term):
        return None
    return next(filter(None, map(_misused, post_order(term))), None)


def _misused(node: Term) -> str | None:
    if not isinstance(node, Apply) or (record := find(node.op)) is None:
        return None
    if not all(isinstance(arg, Expr) for arg in node.args):
        return f"{node.op} takes tensors"
    readers = {attribute.name: attribute.read for attribute in record.attributes}
    # A reader takes 1 for (1,): what a term holds has been read.
    wrong = [name for name, value in node.attrs if type(readers[name](value)) is not type(value)]
    return f"{node.op} does not take that {wrong[0]}" if wrong else None


def types_differ(left: Expr, right: Term) -> str | None:
    """How the types of two sides differ, or None."""
    if not isinstance(right, Expr):
        return f"the right side is no expression but {right!r}"
    expected = type_of(left)
    try:
        type_ = type_of(right)
    except IllTyped as error:
        first = error.diagnostics[0]
        parts = [f"{label} {value}" for label, value in first.details()]
        return f"the right side is ill-typed: {first.message} ({', '.join(parts)})"
    if same_type(expected, type_):
        return None
    return f"the left side is a {expected}, the right side a {type_}"


# --- test inputs of a rule ---------------------------------------------------------------------


def offered(
    rule: Rule, choose: Choose, *, data: bool = True, rounds: bool = False
) -> Instance | None:
    """An instance of a rule, or None; examples alternate with generated instances."""
    if rule.examples and (rule.instances is None or choose((True, False))):
        places = [expr for example in rule.examples for expr in occurrences(rule, example)]
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
    inputs = tuple((var, array(var.type, choose)) for var in variables) if data else ()
    return Instance(term, inputs, variables)
