"""index: arithmetic on indices and dims: bounds, simplification and proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "EMPTY",
    "INDEX_RULES",
    "ByInstance",
    "Context",
    "ForAll",
    "Given",
    "InWindow",
    "Interval",
    "Open",
    "Proved",
    "Range",
    "Refuted",
    "Residue",
    "RuleVerdict",
    "Undecided",
    "Within",
    "Wrong",
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
    from plica.rewrite.index.bounds import bounds
    from plica.rewrite.index.certificate import holds
    from plica.rewrite.index.context import EMPTY, Context, Range
    from plica.rewrite.index.guard import Given, Within, given
    from plica.rewrite.index.interval import Interval
    from plica.rewrite.index.knowledge import Residue
    from plica.rewrite.index.modular import modular
    from plica.rewrite.index.prove import (
        Proved,
        Refuted,
        Undecided,
        can_prove,
        decide,
        decide_equal,
    )
    from plica.rewrite.index.rules import INDEX_RULES
    from plica.rewrite.index.simplify import simplified, simplify
    from plica.rewrite.index.verdict import (
        ByInstance,
        ForAll,
        InWindow,
        Open,
        RuleVerdict,
        Wrong,
        certify,
        prove_rule,
    )
else:
    lazily(__name__)
