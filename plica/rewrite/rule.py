"""Rules: named equations between terms.

>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> relu = find("nn.relu")
>>> rule("relu-relu", relu(relu(x)), relu(x))
Rule('relu-relu')

The left side is a pattern.  The right side is a term over the same holes, or, where it computes,
a function from the match to a term (or to None: does not apply after all).  A rule is checked when
it is made: a right side with a hole the left side does not bind, or sides that can't have one type,
are refused.  What a rule changes in floating point is said by its contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from plica.core.diagnostic import RuleRefused
from plica.core.fold import post_order
from plica.core.term import Term
from plica.rewrite.contract import Contract, exact
from plica.rewrite.instantiate import Plan, plan
from plica.rewrite.match import Head, Match, Matcher, compiled
from plica.rewrite.pattern import hole_names
from plica.runtime.error import Diagnostic, Place

Computed: TypeAlias = Callable[[Match], "Term | None"]
Guard: TypeAlias = Callable[[Match], bool]


@attrs.frozen(eq=False, repr=False)
class Rule:
    """An equation that may be used from left to right."""

    name: str
    left: Term
    right: Term | Computed
    contract: Contract
    when: Guard | None
    place: Place | None
    matchers: tuple[tuple[Head, Matcher], ...]
    build: Plan | None

    def at(self, term: Term) -> Term | None:
        """The right side where the left side is `term`, None where the rule does not apply."""
        for _, matcher in self.matchers:
            result = self.apply(matcher, term)
            if result is not None:
                return result
        return None

    def apply(self, matcher: Matcher, term: Term) -> Term | None:
        """As `at`, for one alternative of the left side."""
        filling: dict[str, Any] = {}
        if not matcher(term, filling):
            return None
        if self.when is not None and not self.when(Match(filling)):
            return None
        if self.build is not None:
            result: Term | None = self.build(filling)
        else:
            result = self.right(Match(filling))  # type: ignore[operator]  # no plan: a function
        return None if result is term else result

    @property
    def computed(self) -> bool:
        """Whether the right side is a function: such a rule can be tested, not proved."""
        return self.build is None

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


def rule(
    name: str,
    left: Any,
    right: Any,
    *,
    when: Guard | None = None,
    float: Contract = exact,
) -> Rule:
    """A rule; raises `RuleRefused` where it can't be one."""
    place = _caller()
    build: Plan | None = None
    wrong: list[Diagnostic] = []
    if not isinstance(left, Term) or type(left).hole:
        message = f"The left side of {name} must be a term with structure, found {left!r}."
        wrong.append(Diagnostic("bad-rule", message, place))
    elif isinstance(right, Term):
        loose = sorted(hole_names(right) - hole_names(left))
        if loose:
            wrong.append(
                Diagnostic(
                    "unbound-hole",
                    f"The right side of {name} uses holes that the left side does not bind.",
                    place,
                    expected=f"holes among {', '.join(sorted(hole_names(left)))}",
                    found=", ".join(loose),
                )
            )
        build = plan(right)
    elif not callable(right):
        message = f"The right side of {name} must be a term or a function, found {right!r}."
        wrong.append(Diagnostic("bad-rule", message, place))
    if wrong:
        raise RuleRefused(*wrong)
    return Rule(name, left, right, float, when, place, compiled(left), build)


def size(pattern: Term) -> int:
    """The number of distinct nodes of a pattern that are not holes."""
    return sum(1 for node in post_order(pattern) if not type(node).hole)


def _caller() -> Place | None:
    """Where the rule was written: the first frame outside this file."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return None
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)
