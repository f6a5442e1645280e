"""Policies by name: the strategies that `plica tune` offers.

>>> policy_named("genetic", Machine(512, 32)).name
'genetic/32/3/0.1'
>>> ", ".join(POLICIES)
'guided, evolution, annealing, descent, genetic, random, grid'

Those that learn can be given the cost model of a library: `guided:acme`.

Cost models of libraries: what learns which candidates are fast, found by entry point.

A library names a learner under the entry-point group `plica.cost_models`: a value with `fitted`
and `scores` as `plica.search.model.model` says.  `plica.tune(model, policy="guided:acme")` searches
with the one that is called `acme`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from plica.core import ExtensionGroup
from plica.runtime.error import Diagnostic, InputError
from plica.schedule.default import Machine
from plica.search.model.baseline import Analytical
from plica.search.model.model import Model
from plica.search.model.shipped import shipped, shipped_digest
from plica.search.policy.cost_judge import CostJudge, stores
from plica.search.policy.fold import Explorer, Policy
from plica.search.policy.guided import Guided
from plica.search.policy.model_free import Descent, Genetic, Grid, Uniform
from plica.search.policy.model_guided import Annealing, Evolution

# An explorer's memory is its own affair.
LEARNING: Final[dict[str, Callable[[CostJudge], Explorer[Any]]]] = {
    "guided": Guided,
    "evolution": Evolution,
    "annealing": Annealing,
}
MODEL_FREE: Final[dict[str, Callable[[], Explorer[Any]]]] = {
    "descent": Descent,
    "genetic": Genetic,
    "random": Uniform,
    "grid": Grid,
}
POLICIES: Final = (*LEARNING, *MODEL_FREE)
TRANSFER: Final = "transfer"
"""The guided policy that starts from records; available with a database."""


def learned(machine: Machine) -> CostJudge:
    """The shipped model over store features, skipping points estimated to be far slower."""
    name = f"blended-{shipped_digest()}"
    return CostJudge(name, shipped().standing, stores(machine), Analytical().cycles)


def guided(machine: Machine) -> Policy[Any]:
    """The guided search, whose model also ranks the first batch."""
    judge = learned(machine)
    return Policy(Guided(judge, analyst=judge))


def policy_by(name: str, judge: Callable[[], CostJudge], also: Iterable[str] = ()) -> Policy[Any]:
    """The policy with this name, learning by a judge; others are offered `also`."""
    if name in MODEL_FREE:
        return Policy(MODEL_FREE[name]())
    if name in LEARNING:
        return Policy(LEARNING[name](judge()))
    raise unknown_policy(name, (*POLICIES, *also))


def unknown_policy(name: str, offered: Iterable[str], where: str = "") -> InputError:
    """The refusal of a policy that is not offered."""
    message = f"There is no search policy {name!r}{where}."
    expected = f"one of {', '.join(offered)}"
    return InputError(Diagnostic("unknown-policy", message, None, expected, name))


def policy_named(name: str, machine: Machine) -> Policy[Any]:
    """The processor policy of this name; raises `InputError` if there is none."""
    way, colon, model = name.partition(":")
    if colon and way in LEARNING:
        return policy_by(way, lambda: CostJudge(model, COST_MODELS.load(model), stores(machine)))
    if name == "guided":
        return guided(machine)
    return policy_by(name, partial(learned, machine), (TRANSFER,))


# --- cost models of libraries ------------------------------------------------------------------


def _learns(of: object) -> bool:
    return not isinstance(of, type) and all(
        callable(getattr(of, word, None)) for word in ("fitted", "scores")
    )


COST_MODELS: Final[ExtensionGroup[Model]] = ExtensionGroup(
    "plica.cost_models", "cost model", _learns, error=InputError, unknown="unknown-policy"
)
"""The cost models that libraries offer, by name."""
