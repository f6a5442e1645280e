"""Every policy, small: what the laws of policies are tested on."""

from __future__ import annotations

from typing import Any

from plica.search.accel.cycles import Ridge
from plica.search.observation import Observation
from plica.search.policy.breed import Breeding
from plica.search.policy.cost_judge import CostJudge, knobs
from plica.search.policy.example import SQUARE, cost
from plica.search.policy.fold import Policy
from plica.search.policy.guided import Guided
from plica.search.policy.lesson import Lesson
from plica.search.policy.model_free import Descent, Genetic, Grid, Uniform
from plica.search.policy.model_guided import Annealing, Evolution

JUDGE = CostJudge("ridge", Ridge(), knobs)
LESSONS = (Lesson(SQUARE, tuple([Observation(p, cost(p)) for p in SQUARE.defaults()])),)
SMALL = Breeding(population=32, generations=2, fresh=8)

# fmt: off
POLICIES: dict[str, Policy[Any]] = {
    "random":    Policy(Uniform(batch=5)),
    "grid":      Policy(Grid(batch=5)),
    "genetic":   Policy(Genetic(population=6)),
    "annealing": Policy(Annealing(JUDGE, batch=5, chains=8, steps=12)),
    "evolution": Policy(Evolution(JUDGE, batch=5, breeding=SMALL)),
    "descent":   Policy(Descent(batch=5)),
    "guided":    Policy(Guided(JUDGE, first=6, batch=5, breeding=SMALL)),
    "transfer":  Policy(Guided(JUDGE, lessons=LESSONS, first=6, batch=5, breeding=SMALL)),
    "analysed":  Policy(Guided(JUDGE, analyst=JUDGE, first=6, batch=5, breeding=SMALL)),
}
# fmt: on
