"""Passes of rules: packs on a pipeline, driven by strategies, and the driver of the graph part.

    rules("simplify", "Arithmetic that is not needed goes.", "simplify")       to a normal form
    rules("expand", "Once, from the top.", MY_PACK, swept_down)                by another strategy

The rules of a pack that the contract does not allow are left out.  A pack may be named, given, or
chosen by a function of the setting: what pays may depend on the machine.

>>> from plica.ir.contract import exact
>>> each = rules("logic", "An example.", "logic")
>>> each.kind, [pack.name for pack in each.run.packs(Setting(exact))]
('rules', ['logic'])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

from attrs import frozen

from plica.ir.contract import DEFAULT_CONTRACT, Contract, join
from plica.ir.driver import Instrument, ModuleChecks, apply, check_contracts, drive, loose_pass
from plica.ir.passes import Pass, PassError, Pipeline
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.rewrite.packs import PARTS, find_pack, has_any, may_apply, parts_of, united
from plica.rewrite.strategy import Driving, innermost


@frozen(eq=False)
class Setting:
    """The parameters of a pipeline: the contract that rules must keep, and the user's packs."""

    contract: Contract = DEFAULT_CONTRACT
    packs: tuple[Pack, ...] = ()


Chosen: TypeAlias = Callable[[Setting], Sequence[Pack]]  # chooses packs by the setting


@frozen
class Rules:
    """Packs that are driven by a strategy, one pack after another."""

    given: str | Pack | Chosen
    by: Driving = innermost
    about: Collection[str] = ()
    """Operators, one of which every left side contains; empty if modules are not checked."""

    def packs(self, setting: Setting) -> tuple[Pack, ...]:
        """The packs, with those of their rules that the contract allows."""
        match self.given:
            case str(name):
                found: Sequence[Pack] = (find_pack(name),)
            case Pack():
                found = (self.given,)
            case choose:
                found = choose(setting)
        return tuple([pack.within(setting.contract) for pack in found])

    def __call__(self, history: History, setting: Setting) -> History:
        """The history after the packs; types are found after each, since the next may ask."""
        if isinstance(self.given, str):
            if self.given in PARTS and self.by is innermost:
                return _by_parts(self.given, history, setting.contract)
            if not may_apply(self.given, history.module):
                return history
        if self.about and not has_any(self.about, history.module):
            return history
        for pack in self.packs(setting):
            history = history.under(pack, by=self.by)
        return history


def _by_parts(union: str, history: History, contract: Contract) -> History:
    """The history after the parts of a union that speak of operators the module has.

    Rules may bring in operators of other parts: these join, until no more do.
    """
    used: tuple[str, ...] = ()
    while not set(found := parts_of(union, history.module)) <= set(used):
        used = tuple([part for part in PARTS[union] if part in found or part in used])
        history = history.under(united(union, used).within(contract))
    return history


def rules(
    name: str,
    why: str,
    given: str | Pack | Chosen,
    by: Driving = innermost,
    about: Collection[str] = (),
) -> Pass:
    """A pass that uses the rules of packs, within the contract asked for, by a strategy.

    Law: with operators that the rules are `about`, they are chosen for modules alone that have one.
    """
    return Pass(name, why, Rules(given, by, about), kind="rules")


def packs_of(each: Pass, setting: Setting) -> tuple[Pack, ...]:
    """The packs of a pass of rules; empty for other passes."""
    return each.run.packs(setting) if isinstance(each.run, Rules) else ()


def asked_for(setting: Setting) -> Sequence[Pack]:
    """The packs of the user."""
    return setting.packs


def through(
    pipeline: Pipeline,
    history: History,
    setting: Setting,
    instruments: Sequence[Instrument] = (),
    debug: bool = False,
) -> History:
    """The history after the graph passes and rules of a pipeline, each within the contract."""
    check_contracts(pipeline, setting.contract)
    checks = HistoryChecks() if debug else None
    return drive(pipeline, history, partial(_step, setting), instruments, checks)


def _step(setting: Setting, each: Pass, history: History) -> History:
    return advanced(each, history, setting)


def advanced(each: Pass, history: History, setting: Setting) -> History:
    """The history after one graph pass, or the rules of one pass."""
    if each.kind != "rules":
        return history.made(each, apply(each, history.module))
    made = each.run(history, setting)
    assert isinstance(made, History)
    kept = contract_since(history, made)
    if not kept <= setting.contract:
        raise PassError(loose_pass(each.name, kept, setting.contract))
    return made


def contract_since(before: History, after: History) -> Contract:
    """The join of the contracts of the steps from one history to a later one."""
    later = after.derivation.steps[len(before.derivation.steps) :]
    return join(step.rule.contract for step in later)


class HistoryChecks:
    """The checks of modules, for the module of a history."""

    def before(self, each: Pass, state: History) -> str | None:
        """Why a pass cannot take the module."""
        return ModuleChecks().before(each, state.module)

    def after(self, each: Pass, state: History) -> str | None:
        """What a pass has broken, or None."""
        return ModuleChecks().after(each, state.module)
