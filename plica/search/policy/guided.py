"""Guided search: first by estimates, then by the learned model, then around the best points.

    first    what each sketch decides by itself, and points near: what analysis alone proposes
    learned  batches bred under a model of everything measured, part of each next to the incumbent,
             part of what the model knows little of; only of sketches that have not been seen to be
             slow
    taught   instead of the first: what was fast in like work, and what a model of it thinks
    near     when nothing better was found for a while: all that is next to the incumbent

The stages follow from the log, so nothing is remembered but how long the best has been the best.

>>> from plica.search.policy.example import SQUARE, best_of, cost
>>> from plica.search.accel.cycles import Ridge
>>> policy = Policy(Guided(CostJudge("ridge", Ridge(), knobs), batch=8))
>>> best_of(policy, SQUARE, cost, trials=32, seed=0)
1.0
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import isfinite
from random import Random
from typing import Final

import numpy as np
from attrs import field, frozen

from plica.search.observation import Observation, is_faster
from plica.search.policy import lesson
from plica.search.policy.breed import Breeding, Effort, bred
from plica.search.policy.cost_judge import CostJudge, Score, knobs
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.policy.model_free import Footing, around
from plica.search.policy.model_guided import mixed
from plica.search.space import Point, Space

__all__ = ["CostJudge", "Guided", "Policy", "knobs"]


@frozen
class Incumbent:
    """The best so far, and for how many rounds nothing was found to be better."""

    best: Observation | None = None
    rounds: int = 0


@frozen
class Guided:
    """Models that have opinions before and after measuring, and how the batches are made up."""

    judge: CostJudge
    analyst: CostJudge | None = None  # ranks the first batch, beside the order of the space
    first: int = 8
    batch: int = 8
    breeding: Breeding = field(factory=lambda: Breeding(population=256, generations=3))
    near: float = 0.25  # the share of a batch that lies next to the incumbents
    exploration: float = 0.25  # the share of points that the model knows little of
    model_share: float = 0.95
    effort: int = 32  # points that may be replayed to be scored: a few times those built
    patience: int = (
        2  # after this many rounds in vain, only what is next to the incumbents is tried
    )
    lessons: tuple[lesson.Lesson, ...] = ()  # observations of other work, tried first here
    precedents: tuple[lesson.Precedent, ...] = ()  # the fastest schedules of work without a space
    word: str = "guided"  # what its name begins with

    @property
    def name(self) -> str:
        first = f"{self.first}-{self.analyst.name if self.analyst else 'near'}"
        shares = f"{self.near}-{self.exploration}-{self.model_share}"
        batch = f"{self.batch}-{shares}-{self.effort}-{self.patience}"
        known = len(self.lessons) + len(self.precedents)
        judge = self.judge.name + (f"-after-{known}" if known else "")
        return f"{self.word}/{judge}/{first}/{batch}/{self.breeding.name}"

    def chosen(
        self, known: ObservedSpace, memory: Incumbent | None, random: Random
    ) -> tuple[Incumbent, Sequence[Point]]:
        """The next batch."""
        memory = _followed(memory or Incumbent(), known.best)
        if not known.log:
            return memory, self.estimated(known, random)
        if known.best is None:
            return memory, known.fresh(random, self.batch)
        stagnation = max(0, memory.rounds - self.patience) / self.patience
        fast = promising(known, SLOW * (1 + stagnation))
        # Slow points are neither learned from nor proposed: their features are skipped.
        seen = ObservedSpace(known.space, _within(known.log, fast))
        model = self.judge.taught(seen)
        score = self.judge.opinion(model, seen)
        near = _beside(known, 1 + memory.rounds, fast)
        effort = Effort(known.space, known.taken, self.effort // 2)
        beside = _thought(score, [point for point in near if effort.affords(point)])
        stuck = memory.rounds >= self.patience
        count = self.batch if stuck else round(self.near * self.batch)
        untried = _untried(known)[: self.batch // 8]
        points = list(dict.fromkeys([*untried, *beside[:count]]))
        missing = self.batch - len(points)
        if missing > 0:
            met = set(points)
            effort = Effort(known.space, known.taken, self.effort // 2)
            ranked = bred(known, score, random, self.breeding, sketches=fast, effort=effort)
            others = [point for point in ranked if point not in met]
            many = min(missing, round(self.exploration * self.batch))
            hoped = self.judge.hopes(model, known.space, others[:HOPED], points, many)
            met |= set(hoped)
            points += hoped
            missing -= len(hoped)
            others = [point for point in others if point not in met]
            points += [
                e for e in mixed(known, others, missing, self.model_share, random) if e not in met
            ]
        # If sketches have only one or two points, the rest of a batch goes to the others.
        more = [point for point in _untried(known) if point not in points]
        return memory, [*points, *more[: max(0, self.batch - len(points))]]

    def estimated(self, known: ObservedSpace, random: Random) -> list[Point]:
        """Proposals by analysis alone: the defaults, then the best of their neighbours."""
        space = known.space
        defaults = list(dict.fromkeys(space.defaults()))[: self.first]
        around_them = [space.neighbours(default) for default in defaults[:FOREMOST]]
        near = [point for point in lesson.round_robin(*around_them) if point not in defaults]
        points = [*defaults, *near]
        if self.analyst is not None:
            effort = Effort(space, (), self.effort)
            every = [e for e in dict.fromkeys([*space.defaults(), *near]) if effort.affords(e)]
            points = lesson.round_robin(defaults, _thought(self.analyst.before(space), every))
        if self.lessons or self.precedents:
            points = [space.default, *lesson.round_robin(self._taught(space), points)]
        points = list(dict.fromkeys(points))[: self.first]
        return [*points, *known.fresh(random, self.first - len(points), points)]

    def _taught(self, space: Space) -> list[Point]:
        """Points that were fast elsewhere, if it is the same work or they score at least like the
        default."""
        features = self.judge.features

        def apart(one: Space, other: Space) -> float:
            both = [features(each, (each.default,)).rows.sum(axis=0) for each in (one, other)]
            return float(np.abs(both[0] - both[1]).sum())

        same = [each for each in self.lessons if apart(each.space, space) == 0.0]
        known = lesson.points_of_lessons(space, same, apart)
        others = [each for each in self.lessons if each not in same]
        precedents = lesson.points_of_precedents(space, self.precedents)
        elsewhere = lesson.round_robin(lesson.points_of_lessons(space, others, apart), precedents)
        least, *opinion = self.judge.before(space)([space.default, *elsewhere])
        liked = [point for point, of in zip(elsewhere, opinion, strict=True) if of >= least]
        return [*known, *liked]


FOREMOST: Final = 4  # first sketches whose neighbours are tried: the best by rule of thumb
HOPED: Final = 200  # highly ranked points that are searched for uncertain ones
SLOW: Final = 1.5  # a sketch that is this many times slower is left alone until the search stalls


def promising(known: ObservedSpace, slow: float = SLOW) -> frozenset[int]:
    """The sketches that have been seen to be fast enough."""
    least = min([each.cost for each in known.ranked if each.cost is not None], default=0.0)
    fast = [each for each in known.ranked if (each.cost or 0.0) <= slow * least]
    return frozenset([observation.point.sketch for observation in fast])


def _within(log: Sequence[Observation], sketches: Container[int]) -> tuple[Observation, ...]:
    return tuple([observation for observation in log if observation.point.sketch in sketches])


def _untried(known: ObservedSpace) -> list[Point]:
    """The defaults of sketches of which nothing has been tried."""
    tried = {point.sketch for point in known.taken}
    return [default for default in known.space.defaults() if default.sketch not in tried]


def _followed(memory: Incumbent, best: Observation | None) -> Incumbent:
    if best is None or memory.best is None or is_faster(best, memory.best):
        return Incumbent(best)
    return Incumbent(memory.best, memory.rounds + 1)


def _beside(known: ObservedSpace, incumbents: int, sketches: Container[int]) -> list[Point]:
    """Untried neighbours of the fastest points of some sketches."""
    found = dict[Point, None]()
    for observation in _within(known.ranked[:incumbents], sketches):
        found.update(dict.fromkeys(around(known, Footing(observation.point))))
    return [point for point in found if point not in known.taken]


def _thought(score: Score, points: Sequence[Point]) -> list[Point]:
    """The points in the order of a score, best first; illegal points are dropped."""
    opinion = score(points)
    order = sorted(range(len(points)), key=lambda n: (-opinion[n], n))
    return [points[n] for n in order if isfinite(opinion[n])]
