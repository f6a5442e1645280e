"""Stages: the transformations applied to a module in sequence, so that failures can be attributed.

>>> from plica.rewrite.graph import find_pass
>>> from plica.rewrite.packs.algebra import ALGEBRA
>>> [each.name for each in (find_pass("to-anf"), ALGEBRA)]
['to-anf', 'algebra']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from plica.core import CompilerBug, Term
from plica.ir.contract import exact
from plica.ir.graph.module import Module
from plica.ir.passes import Pass
from plica.ir.type import infer
from plica.rewrite.derivation import first_bad
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import Setting

Stage: TypeAlias = Pass | Pack


@attrs.frozen(eq=False)
class Blame:
    """What changed the meaning: a stage, in a pack one use of a rule, and the modules around it."""

    stage: str
    rule: str | None
    before: Module
    after: Module


def after(history: History, stage: Stage) -> History:
    """The history after one more stage."""
    if isinstance(stage, Pack):
        return history.under(stage)
    if stage.kind == "rules":
        made: History = stage.run(history, Setting(exact, ()))
        return made
    return history.through(stage)


def blame(history: History, stages: Sequence[Stage], good: Callable[[Module], bool]) -> Blame:
    """The step of the history after which `good` fails."""
    if (bad := first_bad(history.derivation, lambda term: good(_module(term)))) is None:
        raise CompilerBug("A history that went wrong is right at its end.")
    before, changed = _module(bad.before), _module(bad.after)
    name = bad.step.rule.name
    if bad.step.rule.is_pass:
        return Blame(name, None, before, changed)
    owners = [
        each.name
        for each in stages
        if isinstance(each, Pack) and any(bad.step.rule is rule for rule in each)
    ]
    owner = owners[0] if owners else "a pass of rules"
    return Blame(owner, name, before, changed)


def _module(term: Term) -> Module:
    """A state of the history as something to run: in the middle of a sweep it lacks types."""
    assert isinstance(term, Module)  # no rule speaks of modules
    return infer(term)
