"""Policies by name: the ways to search that `plica tune` offers.

>>> policy_named("genetic", Machine(512, 32)).name
'genetic/32/3/0.1'
>>> ", ".join(POLICIES)
'guided, evolution, annealing, descent, genetic, random, grid'

Those that learn can be given the cost model of a library: `guided:acme`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from plica.runtime.error import Diagnostic, InputError
from plica.schedule.default.machine import Machine
from plica.search.model import Analytical
from plica.search.model.offered import COST_MODELS
from plica.search.model.shipped import shipped, shipped_digest
from plica.search.policy.annealing import Annealing
from plica.search.policy.cost_judge import CostJudge, stores
from plica.search.policy.descent import Descent
from plica.search.policy.evolution import Evolution
from plica.search.policy.fold import Policy
from plica.search.policy.genetic import Genetic
from plica.search.policy.grid import Grid
from plica.search.policy.guided import Guided
from plica.search.policy.uniform import Uniform


def learned(machine: Machine) -> CostJudge:
    """Boosted trees over the features of stores, on those of drawn work; what is reckoned to be far
    slower is left out."""
    name = f"blended-{shipped_digest()}"
    return CostJudge(name, shipped().standing, stores(machine), Analytical().cycles)


# fmt: off
LEARNING: Final[Mapping[str, Callable[[CostJudge], Policy[Any]]]] = {
    "guided":    lambda judge: Policy(Guided(judge)),
    "evolution": lambda judge: Policy(Evolution(judge)),
    "annealing": lambda judge: Policy(Annealing(judge)),
}
# fmt: on
"""The searches that learn, with whatever they learn by."""


def guided(machine: Machine) -> Policy[Any]:
    """The guided search; what drawn work has taught speaks before anything is measured, too."""
    judge = learned(machine)
    return Policy(Guided(judge, analyst=judge))


# fmt: off
POLICIES: Final[Mapping[str, Callable[[Machine], Policy[Any]]]] = {
    "guided":    guided,
    "evolution": lambda machine: LEARNING["evolution"](learned(machine)),
    "annealing": lambda machine: LEARNING["annealing"](learned(machine)),
    "descent":   lambda machine: Policy(Descent()),
    "genetic":   lambda machine: Policy(Genetic()),
    "random":    lambda machine: Policy(Uniform()),
    "grid":      lambda machine: Policy(Grid()),
}
# fmt: on


TRANSFER: Final = "transfer"
"""The guided policy that learns from records first: it is made where there is a database."""


def policy_named(name: str, machine: Machine) -> Policy[Any]:
    """The policy with this name; raises `InputError` where there is none."""
    if name in POLICIES:
        return POLICIES[name](machine)
    way, colon, model = name.partition(":")
    if colon and way in LEARNING:
        return LEARNING[way](CostJudge(model, COST_MODELS.load(model), stores(machine)))
    expected = f"one of {', '.join((*POLICIES, TRANSFER))}"
    message = f"There is no search policy {name!r}."
    raise InputError(Diagnostic("unknown-policy", message, None, expected, name))
