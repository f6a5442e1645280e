"""Histories: one derivation for a whole compilation, through rules and passes alike.

>>> from plica.ir.passes import Pass
>>> from plica.ir.graph.module import module
>>> empty = module({})
>>> history = begun(empty).through(Pass("nothing", "An example.", lambda each: each))
>>> history.module is empty, len(history.derivation.steps)
(True, 0)
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, exact_pass
from plica.ir.type import infer
from plica.rewrite.derivation import Derivation, DerivationStep, Rewritten
from plica.rewrite.pack import Pack
from plica.rewrite.pattern import Hole
from plica.rewrite.rule import Rule
from plica.rewrite.strategy import Driving, innermost

INFER = exact_pass("infer", "What rules made has types.", infer)


@frozen(eq=False)
class History:
    """A module with the steps that led to it."""

    module: Module
    derivation: Derivation

    def through(self, each: Pass) -> History:
        """The history after a pass."""
        return self.made(each, each(self.module))

    def made(self, by: Pass, after: Module, contract: Contract | None = None) -> History:
        """The history after a pass that made another module of this one, within `contract`: that
        which the pass declares if none is given."""
        if after is self.module:
            return self
        step = DerivationStep(rule_of(by, contract or by.contract), self.module, after)
        return History(after, self.derivation.then((step,)))

    def under(
        self, pack: Pack, contract: Contract | None = None, by: Driving = innermost
    ) -> History:
        """The history after rewriting under the rules within a contract, by a strategy."""
        used = pack if contract is None else pack.within(contract)
        return self.rewritten(by(used)(self.module))

    def rewritten(self, done: Rewritten | None) -> History:
        """The history extended by a strategy's result."""
        if done is None or not done.steps:
            return self
        assert isinstance(done.term, Module)  # no rule speaks of modules
        return History(done.term, self.derivation.then(done.steps)).through(INFER)


def begun(module: Module) -> History:
    """The history of a module to which nothing was done."""
    return History(module, Derivation(module, ()))


@lru_cache(maxsize=256)
def rule_of(each: Pass, contract: Contract) -> Rule:
    """A pass as a rule over modules, for the steps of a derivation."""
    return Rule(each.name, Hole("module"), lambda m: m.module, contract, None, None, (), None)
