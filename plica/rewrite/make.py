"""Making rules: what cannot be a rule is refused at birth.

>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> relu = find("nn.relu")
>>> rule("relu-relu", relu(relu(x)), relu(x))
Rule('relu-relu')

A right side with a hole the left side does not bind is refused, and so are sides whose types differ
on an instance; a right side that computes is run on some instances for that.
"""

from __future__ import annotations

import inspect
from typing import Any

from plica.core.diagnostic import RuleRefused
from plica.core.term import Term
from plica.ir.scalar import Scalar
from plica.rewrite.check.probe import probe
from plica.rewrite.contract import Contract, exact
from plica.rewrite.instantiate import Plan, plan
from plica.rewrite.match import compiled
from plica.rewrite.pattern import Dominator, bound_names, hole_names
from plica.rewrite.rule import Guard, Rule
from plica.runtime.error import Diagnostic, Place


def rule(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract = exact,
) -> Rule:
    """A rule; raises `RuleRefused` where it can't be one."""
    made = tabled(name, left, right, when=when, float=float)
    if not isinstance(left, Scalar | Dominator):  # a region has no instances to look at
        reason = probe(made)
        if reason is not None:
            message = f"The sides of {name} cannot have one type."
            raise RuleRefused(Diagnostic("rule-types", message, made.place, found=reason))
    return made


def tabled(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract = exact,
) -> Rule:
    """A rule of one of Plica's own tables: tests have tried it, so no instance is made at birth."""
    place = _caller()
    build: Plan | None = None
    wrong: list[Diagnostic] = []
    if not isinstance(left, Term) or type(left).hole:
        message = f"The left side of {name} must be a term with structure, found {left!r}."
        wrong.append(Diagnostic("bad-rule", message, place))
    elif isinstance(right, Term):
        loose = sorted(hole_names(right) - bound_names(left))
        if loose:
            wrong.append(
                Diagnostic(
                    "unbound-hole",
                    f"The right side of {name} uses holes that the left side does not bind.",
                    place,
                    expected=f"holes among {', '.join(sorted(bound_names(left)))}",
                    found=", ".join(loose),
                )
            )
        build = plan(right)
    elif not callable(right):
        message = f"The right side of {name} must be a term or a function, found {right!r}."
        wrong.append(Diagnostic("bad-rule", message, place))
    if when is not None and not callable(when):
        message = f"The guard of {name} must be a function of the match, found {when!r}."
        wrong.append(Diagnostic("bad-rule", message, place))
    if wrong:
        raise RuleRefused(*wrong)
    return Rule(name, left, right, float, when, place, compiled(left), build)


def _caller() -> Place | None:
    """Where the rule was written: the first frame outside this file."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return None
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)
