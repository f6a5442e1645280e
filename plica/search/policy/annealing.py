"""Annealing: many chains walk over a space at once, under what a model has learned so far.

A chain moves to a worse point the likelier, the warmer it is; the temperature falls from one to
nothing in every round, and the chains go on from where they were.  The best points that any of
them met are the batch.

>>> from plica.search.policy.example import SQUARE, cost
>>> from plica.search.policy.ridge import Ridge
>>> from plica.search.policy.trial import best_of
>>> policy = Policy(Annealing(CostJudge("ridge", Ridge(), knobs), batch=8, chains=16, steps=40))
>>> best_of(policy, SQUARE, cost, trials=40, seed=0)
1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite
from random import Random

from attrs import frozen

from plica.search.policy.cost_judge import CostJudge, Score, knobs
from plica.search.policy.evolution import mixed
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.space import Point, Space

__all__ = ["Annealing", "CostJudge", "Policy", "knobs"]


@frozen
class Annealing:
    """A model, how many points at once, how many chains, how long they walk."""

    judge: CostJudge
    batch: int = 64
    chains: int = 128
    steps: int = 500
    patience: int = 50  # a round ends when its best points stay the same for so many steps
    greed: float = 0.95

    @property
    def name(self) -> str:
        walk = f"{self.chains}x{self.steps}-{self.patience}"
        return f"annealing/{self.judge.name}/{self.batch}/{walk}/{self.greed}"

    def start(self, space: Space) -> tuple[Point, ...]:
        """The chains are remembered; there are none at first."""
        return ()

    def chosen(
        self, known: ObservedSpace, memory: tuple[Point, ...], random: Random
    ) -> tuple[tuple[Point, ...], Sequence[Point]]:
        """Where the chains are now, and the next batch."""
        if known.best is None:
            return memory, known.fresh(random, self.batch)
        chains = list(memory) or [known.space.drawn(random) for _ in range(self.chains)]
        chains, met = self._walked(known, chains, self.judge.after(known), random)
        new = [each for each, of in met.items() if each not in known.taken and isfinite(of)]
        ranked = sorted(new, key=lambda each: -met[each])
        return tuple(chains), mixed(known, ranked, self.batch, self.greed, random)

    def _walked(
        self, known: ObservedSpace, chains: list[Point], score: Score, random: Random
    ) -> tuple[list[Point], dict[Point, float]]:
        """Where the chains end, and what is thought of every point they met."""
        met = dict[Point, float]()
        _judge(chains, met, score)
        kept, still = self._best(known, met), 0
        for step in range(self.steps):
            warm = 1.0 - step / self.steps
            moved = [known.space.mutated(each, random) for each in chains]
            new = _judge(moved, met, score)
            for n, (old, other) in enumerate(zip(chains, moved, strict=True)):
                if random.random() < exp(min((met[other] - met[old]) / warm, 1.0)):
                    chains[n] = other
            if new:
                best = self._best(known, met)
                kept, still = best, still + 1 if best == kept else 0
            else:
                still += 1
            if still >= self.patience:
                break
        return chains, met

    def _best(self, known: ObservedSpace, met: dict[Point, float]) -> list[float]:
        """What is thought of the best points that have not been tried."""
        return sorted([of for each, of in met.items() if each not in known.taken])[-self.batch :]


def _judge(points: Sequence[Point], met: dict[Point, float], score: Score) -> bool:
    """Ask for an opinion on what has not been met; whether there was any."""
    unknown = [each for each in dict.fromkeys(points) if each not in met]
    met.update(zip(unknown, map(float, score(unknown)), strict=True))
    return bool(unknown)
