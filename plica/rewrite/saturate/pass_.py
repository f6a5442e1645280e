"""Saturation on a pipeline: instead of a normal form, the cheapest form that the rules make equal.

`cheapest` drives a pack as `innermost` does; no pipeline uses it by default, because on whole
models it takes longer than it saves.

    pipeline.insert("saturate", after="simplify-again")            Plica's own simplifications
    pipeline.insert(rules("mine", "…", MY_PACK, cheapest()), after="fold-again")
"""

from __future__ import annotations

from typing import Final

from plica.core import Term
from plica.rewrite.derivation import Rewritten
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import rules
from plica.rewrite.saturate.cost import Cost, elements
from plica.rewrite.saturate.limit import SaturationLimits
from plica.rewrite.saturate.run import saturate
from plica.rewrite.strategy import Driving, Strategy


def cheapest(limits: SaturationLimits | None = None, cost: Cost = elements) -> Driving:
    """Drives a pack by equality saturation: all forms are kept, then the cheapest is extracted."""

    def driving(pack: Pack) -> Strategy:
        def run(term: Term) -> Rewritten | None:
            best, derivation = saturate(term, pack, limits, cost=cost)
            return Rewritten(best, derivation.steps) if derivation.steps else None

        return run

    return driving


SATURATE: Final = rules(
    "saturate", "Of all forms that simplifying makes equal, the cheapest.", "simplify", cheapest()
)
