"""index: arithmetic on indices and dims: bounds, simplification and proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "EMPTY",
    "INDEX_RULES",
    "ByInstance",
    "Context",
    "ContextualRewrite",
    "Fails",
    "ForAll",
    "Holds",
    "InWindow",
    "Interval",
    "OpenQuestion",
    "Range",
    "Residue",
    "RuleGuard",
    "RuleVerdict",
    "Undecided",
    "WrongRule",
    "bounds",
    "can_prove",
    "certify",
    "decide",
    "decide_equal",
    "given",
    "holds",
    "modular",
    "prove_rule",
    "simplified",
    "simplify",
]

if TYPE_CHECKING:
    from plica.analysis.index.bounds import bounds, modular
    from plica.analysis.index.certificate import holds
    from plica.analysis.index.context import EMPTY, Context, Range
    from plica.analysis.index.interval import Interval
    from plica.analysis.index.knowledge import Residue
    from plica.analysis.index.prove import Fails, Holds, Undecided, can_prove, decide, decide_equal
    from plica.analysis.index.rules import INDEX_RULES, ContextualRewrite, RuleGuard, given
    from plica.analysis.index.simplify import simplified, simplify
    from plica.analysis.index.verdict import (
        ByInstance,
        ForAll,
        InWindow,
        OpenQuestion,
        RuleVerdict,
        WrongRule,
        certify,
        prove_rule,
    )
else:
    lazily(__name__)
