"""rewrite: patterns, rules, strategies, derivations, packs, equivalence checking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily, require_name_in_plica

require_name_in_plica(__name__)

__all__ = [
    "Contract", "Derivation", "DerivationStep", "Driving", "Pack", "PatternMatch", "Rest",
    "Rewritten", "Rule", "Strategy", "all_", "approx", "at", "attempt", "became", "bottom_up",
    "choice", "constants", "dominates", "either", "exact", "fail", "first_bad", "fork", "fused",
    "hole", "holes", "identity", "index_constants", "index_holes", "innermost", "join", "match",
    "one", "optional", "outputs", "pack", "reassociates", "recursive", "regions", "repeat",
    "rewrite", "rewrite_dominated", "rewrite_outputs", "rule", "seq", "signless_zero", "some",
    "swept_down", "swept_up", "top_down", "use", "where", "why",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.ir.contract import Contract, approx, exact, fused, join, reassociates, signless_zero
    from plica.rewrite.derivation import (
        Derivation,
        DerivationStep,
        Rewritten,
        became,
        first_bad,
        fork,
        why,
    )
    from plica.rewrite.dominate import regions, rewrite_dominated
    from plica.rewrite.make import rule
    from plica.rewrite.match import PatternMatch, match
    from plica.rewrite.output_groups import outputs, rewrite_outputs
    from plica.rewrite.pack import Pack, pack, rewrite
    from plica.rewrite.pattern import (
        Rest,
        constants,
        dominates,
        either,
        hole,
        holes,
        index_constants,
        index_holes,
        optional,
    )
    from plica.rewrite.recursive import recursive
    from plica.rewrite.rule import Rule
    from plica.rewrite.strategy import (
        Driving,
        Strategy,
        all_,
        at,
        attempt,
        bottom_up,
        choice,
        fail,
        identity,
        innermost,
        one,
        repeat,
        seq,
        some,
        swept_down,
        swept_up,
        top_down,
        use,
        where,
    )
else:
    lazily(__name__)
