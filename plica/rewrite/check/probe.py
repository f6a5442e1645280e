"""A quick look at a rule when it is made: a few instances of its left side, and their types.

No value is computed here, and no test library is needed: importing a pack stays cheap.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from plica.core.diagnostic import IllTyped
from plica.core.term import Term
from plica.ir.graph import Expr
from plica.ir.infer import type_of
from plica.ir.unify import same_type
from plica.rewrite.check.instance import instance
from plica.rewrite.rule import Rule

TRIES: Final = 3


def probe(rule: Rule) -> str | None:
    """Why the sides of a rule can't have one type, None where nothing speaks against it."""
    source = random.Random(0)

    def choose(options: Sequence[Any]) -> Any:
        return options[source.randrange(len(options))]

    for _ in range(TRIES):
        made = instance(rule.left, choose, data=False)
        after = None if made is None else rule.at(made.term)
        if made is not None and after is not None:
            wrong = types_differ(made.term, after)
            if wrong is not None:
                return wrong
    return None


def types_differ(left: Expr, right: Term) -> str | None:
    """How the types of two sides differ, None where they agree."""
    if not isinstance(right, Expr):
        return f"the right side is no expression but {right!r}"
    expected = type_of(left)
    try:
        found = type_of(right)
    except IllTyped as error:
        return f"the right side is ill-typed: {error}"
    if same_type(expected, found):
        return None
    return f"the left side is a {expected}, the right side a {found}"
