"""Strategies that choose whole batches by a cost model: evolution and simulated annealing.

>>> from plica.search.policy.example import SQUARE, best_of, cost
>>> from plica.search.accel.cycles import Ridge
>>> judge = CostJudge("ridge", Ridge(), knobs)
>>> best_of(Policy(Evolution(judge, batch=8)), SQUARE, cost, trials=40, seed=0)
1.0
>>> policy = Policy(Annealing(judge, batch=8, chains=16, steps=40))
>>> best_of(policy, SQUARE, cost, trials=40, seed=0)
1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite
from random import Random

from attrs import field, frozen

from plica.search.policy.breed import Breeding, bred, varied
from plica.search.policy.cost_judge import CostJudge, Score, knobs
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.space import Point

__all__ = ["Annealing", "CostJudge", "Evolution", "Policy", "knobs", "mixed"]


@frozen
class Evolution:
    """Batches bred under the model after every batch; the first is drawn at random."""

    judge: CostJudge
    batch: int = 16
    breeding: Breeding = field(factory=Breeding)
    model_share: float = 0.95  # of a batch; the rest is random, lest the model be wrong elsewhere

    @property
    def name(self) -> str:
        return f"evolution/{self.judge.name}/{self.batch}/{self.breeding.name}/{self.model_share}"

    def chosen(
        self, known: ObservedSpace, memory: None, random: Random
    ) -> tuple[None, Sequence[Point]]:
        """The next batch."""
        if known.best is None:
            return None, known.fresh(random, self.batch)
        ranked = bred(known, self.judge.after(known), random, self.breeding)
        return None, mixed(known, ranked, self.batch, self.model_share, random)


def mixed(
    known: ObservedSpace, ranked: Sequence[Point], batch: int, model_share: float, random: Random
) -> list[Point]:
    """A batch of highly ranked points that differ, and of some random ones."""
    count = sum(random.random() < model_share for _ in range(batch))
    points = varied(ranked[: 2 * count], count)
    return [*points, *known.fresh(random, batch - len(points), points)]


@frozen
class Annealing:
    """Chains that move to worse points with a probability that falls to 0 in each round; the best
    points that any met are the batch, and the chains go on in the next round."""

    judge: CostJudge
    batch: int = 64
    chains: int = 128
    steps: int = 500
    patience: int = 50  # a round ends when its best points stay the same for this many steps
    model_share: float = 0.95

    @property
    def name(self) -> str:
        walk = f"{self.chains}x{self.steps}-{self.patience}"
        return f"annealing/{self.judge.name}/{self.batch}/{walk}/{self.model_share}"

    def chosen(
        self, known: ObservedSpace, memory: tuple[Point, ...] | None, random: Random
    ) -> tuple[tuple[Point, ...], Sequence[Point]]:
        """Where the chains are now, and the next batch."""
        if known.best is None:
            return memory or (), known.fresh(random, self.batch)
        chains = list(memory or ()) or [known.space.drawn(random) for _ in range(self.chains)]
        chains, scores = self._walked(known, chains, self.judge.after(known), random)
        new = [p for p, score in scores.items() if p not in known.taken and isfinite(score)]
        ranked = sorted(new, key=lambda point: -scores[point])
        return tuple(chains), mixed(known, ranked, self.batch, self.model_share, random)

    def _walked(
        self, known: ObservedSpace, chains: list[Point], score: Score, random: Random
    ) -> tuple[list[Point], dict[Point, float]]:
        """Where the chains end, and the scores of all points that they met."""
        scores = dict[Point, float]()
        _score_new(chains, scores, score)
        best, unchanged = self._best(known, scores), 0
        for step in range(self.steps):
            temperature = 1.0 - step / self.steps
            moved = [known.space.mutated(point, random) for point in chains]
            is_any_new = _score_new(moved, scores, score)
            for n, (old, new) in enumerate(zip(chains, moved, strict=True)):
                if random.random() < exp(min((scores[new] - scores[old]) / temperature, 1.0)):
                    chains[n] = new
            before, best = best, self._best(known, scores) if is_any_new else best
            unchanged = unchanged + 1 if best == before else 0
            if unchanged >= self.patience:
                break
        return chains, scores

    def _best(self, known: ObservedSpace, scores: dict[Point, float]) -> list[float]:
        """The scores of the best points that have not been tried."""
        untried = [score for point, score in scores.items() if point not in known.taken]
        return sorted(untried)[-self.batch :]


def _score_new(points: Sequence[Point], scores: dict[Point, float], score: Score) -> bool:
    """Score the points that have no score; whether there were any."""
    new = [point for point in dict.fromkeys(points) if point not in scores]
    scores.update(zip(new, map(float, score(new)), strict=True))
    return bool(new)
