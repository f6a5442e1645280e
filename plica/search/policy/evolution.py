"""Evolution: batches bred under what a model has learned so far.

The first batch is drawn at random; so is a small share of every later one, lest the model be wrong
everywhere it has not looked.

>>> from plica.search.policy.example import SQUARE, cost
>>> from plica.search.policy.ridge import Ridge
>>> from plica.search.policy.trial import best_of
>>> judge = CostJudge("ridge", Ridge(), knobs)
>>> best_of(Policy(Evolution(judge, batch=8)), SQUARE, cost, trials=40, seed=0)
1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import field, frozen

from plica.search.policy.breed import Breeding, bred, varied
from plica.search.policy.cost_judge import CostJudge, knobs
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.space import Point, Space

__all__ = ["CostJudge", "Evolution", "Policy", "knobs"]


@frozen
class Evolution:
    """A model, how many at once, how they are bred, how many of them are random."""

    judge: CostJudge
    batch: int = 16
    breeding: Breeding = field(factory=Breeding)
    greed: float = 0.95  # the share of a batch that the model chooses

    @property
    def name(self) -> str:
        return f"evolution/{self.judge.name}/{self.batch}/{self.breeding.name}/{self.greed}"

    def start(self, space: Space) -> None:
        """Nothing is remembered."""

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """The next batch."""
        if known.best is None:
            return None, known.fresh(random, self.batch)
        ranked = bred(known, self.judge.after(known), random, self.breeding)
        return None, mixed(known, ranked, self.batch, self.greed, random)


def mixed(
    known: ObservedSpace, ranked: Sequence[Point], batch: int, greed: float, random: Random
) -> list[Point]:
    """A batch of points that are thought well of, differ, and are sometimes drawn at random."""
    greedy = sum(random.random() < greed for _ in range(batch))
    found = varied(ranked[: 2 * greedy], greedy)
    return [*found, *known.fresh(random, batch - len(found), found)]
