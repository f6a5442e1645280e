"""Module rewriting: rules that depend on the users of a term, besides rules on terms alone."""

from __future__ import annotations

from typing import Final

from plica.core import RuleRefused
from plica.ir.graph.module import Module
from plica.rewrite.derivation import DerivationStep, Rewritten
from plica.rewrite.dominate import rewrite_dominated
from plica.rewrite.output_groups import rewrite_outputs
from plica.rewrite.pack import Pack, rewrite_under
from plica.rewrite.pattern import Dominator, Outputs
from plica.runtime.error import Diagnostic

MAX_ROUNDS: Final = 100
"""Alternations of both kinds of rules after which they are reported as looping."""


def rewrite_module(module: Module, pack: Pack) -> Rewritten:
    """A module under all rules of a pack, with the steps to it."""
    regions = tuple(rule for rule in pack if isinstance(rule.left, Dominator))
    groups = tuple(rule for rule in pack if isinstance(rule.left, Outputs))
    steps: list[DerivationStep] = []
    for _ in range(MAX_ROUNDS):
        done = rewrite_under(module, pack.local)
        assert isinstance(done.term, Module)  # no rule speaks of modules
        found, of_regions = rewrite_dominated(done.term, regions)
        module, of_groups = rewrite_outputs(found, groups)
        asked = of_regions.steps + of_groups.steps
        steps.extend(done.steps + asked)
        if not asked:
            return Rewritten(module, tuple(steps))
    names = list(dict.fromkeys(step.rule.name for step in steps[-50:]))
    message = "Rewriting does not come to an end."
    expected, found_here = "rules that decrease some measure", f"a cycle through {', '.join(names)}"
    raise RuleRefused(
        Diagnostic("looping-rules", message, steps[-1].rule.place, expected, found_here)
    )
