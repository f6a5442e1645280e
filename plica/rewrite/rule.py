"""Rules: named equations between terms.

The left side is a pattern. The right side is a term over the same holes or, if computed, a function
from the match to a term (or to None: the rule does not apply). The rule's effect on rounding is
declared by its contract. Rules are built, and validated, by `plica.rewrite.make`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import attrs

from plica.core import RuleFailed, RuleRefused, Term
from plica.core.extension import FAILURES, raised_at, said
from plica.ir.contract import Contract
from plica.ir.graph import Expr, Module
from plica.ir.loop.scalar import Scalar
from plica.rewrite.instantiate import Plan
from plica.rewrite.match import Head, Matcher, PatternMatch, no_bool
from plica.runtime.error import Diagnostic, Place
from plica.runtime.late import late

Computed: TypeAlias = Callable[[PatternMatch], "Term | None"]
Guard: TypeAlias = Callable[[PatternMatch], bool]
# Any: a hole's filling is a term, a type or the value of an attribute.
Fillings: TypeAlias = Callable[[Callable[[Sequence[Any]], Any]], "Mapping[str, Any] | Expr"]
"""From a function that picks one of several values to fillings of holes by name, or to a term."""


def term_text(term: Term) -> str:
    """A term as a script says it, where it can."""
    if isinstance(term, Expr):
        return str(late("plica.ir.text.show.module:show_expr")(term))
    if isinstance(term, Scalar):
        return str(late("plica.ir.text.show.scalar:show_scalar")(term))
    return repr(term)


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
    examples: tuple[Module | Expr, ...] = ()  # programs in which the left side occurs, for checks
    instances: Fillings | None = None  # what fills holes that depend on each other, for checks

    def at(self, term: Term) -> Term | None:
        """The right side if the left side matches `term`, otherwise None."""
        for _, matcher in self.matchers:
            if (result := self.apply(matcher, term)) is not None:
                return result
        return None

    def apply(self, matcher: Matcher, term: Term) -> Term | None:
        """As `at`, for one alternative of the left side."""
        filling: dict[str, Any] = {}
        try:
            if not matcher(term, filling):
                return None
            if self.when is not None:
                if isinstance(answer := self.when(PatternMatch(filling)), Term):
                    raise no_bool(answer, f"The guard of {self.name}", self.place)
                if not answer:
                    return None
            if self.build is not None:
                result: Term | None = self.build(filling)
            else:
                result = self.right(PatternMatch(filling))  # type: ignore[operator]  # no plan: a function
        except FAILURES as error:
            raise self._failed(error, term) from error
        return None if result is term else result

    def _failed(self, error: BaseException, term: Term) -> RuleRefused:
        """The exception of a rule with its name, line, and the term at hand."""
        if isinstance(error, RuleRefused):
            first, *rest = error.diagnostics
            if first.place is not None:
                return error
            named = replace(first, message=f"In {self.name}: {first.message}", place=self.place)
            return RuleRefused(named, *rest)
        message = f"The rule {self.name} fails."
        hint = "A right side that cannot be made gives None: the rule does not apply."
        at = raised_at(error) or self.place
        found = f"{said(error)}\non {term_text(term)}"
        return RuleFailed(Diagnostic("rule-fails", message, at, None, found, hint))

    @property
    def computed(self) -> bool:
        """Whether the right side is a function: such a rule can be tested, not proved."""
        return self.build is None

    @property
    def is_pass(self) -> bool:
        """Whether this represents a pass: a step from a whole module to another."""
        return not self.matchers

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"


def all_of_kind(rules: Iterable[Rule], kind: type[Term], otherwise: str) -> tuple[Rule, ...]:
    """The rules, whose left sides are all of a kind that is looked for in whole programs."""
    found = tuple(rules)
    for rule in found:
        if not isinstance(rule.left, kind):
            message = f"The left side of {rule.name} {otherwise}."
            hint = "Use plica.rewrite.rewrite for it."
            raise RuleRefused(Diagnostic("bad-rule", message, rule.place, suggestion=hint))
    return found
