"""Policies: a search as a fold over its observations.

    state                    = policy.begin(space, seed)
    state', proposals        = policy.step(state, observations)
    state', proposals        = policy.ahead(state, observations)

An *explorer* chooses the next batch from the observations, its memory, and a random number
generator seeded by the seed and the round. A *policy* turns an explorer into a fold: it proposes a
batch, waits until all its points have been observed, in any order, and then asks for the next. So
only the log of observations matters, never how it was split:

    step(state, a + b)  =  step(step(state, a), b), the proposals one after the other

>>> from plica.search.policy.model_free import Uniform
>>> from plica.search.policy.example import SQUARE, cost
>>> policy = Policy(Uniform(batch=3))
>>> state, first = policy.step(policy.begin(SQUARE, seed=7))
>>> seen = [Observation(each, cost(each)) for each in first]
>>> halfway, none = policy.step(state, seen[:2])
>>> none
()
>>> policy.step(halfway, seen[2:])[1] == policy.step(state, seen)[1] != first
True
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Generic, Protocol, TypeVar

from attrs import evolve, frozen

from plica.core.collector import age, paused
from plica.search.observation import Observation
from plica.search.space import Point, Space

M = TypeVar("M")


@frozen(eq=False, slots=False)
class ObservedSpace:
    """A space with its observations, in the order of proposals."""

    space: Space
    log: tuple[Observation, ...] = ()

    @cached_property
    def taken(self) -> dict[Point, Observation]:
        """What came of each point."""
        return {each.point: each for each in self.log}

    @cached_property
    def ranked(self) -> tuple[Observation, ...]:
        """The trials that succeeded, each point once, the fastest first."""
        worked = [each for each in self.taken.values() if each.cost is not None]
        return tuple(sorted(worked, key=lambda each: each.cost or 0.0))

    @property
    def best(self) -> Observation | None:
        """The fastest so far."""
        return self.ranked[0] if self.ranked else None

    @property
    def trials(self) -> int:
        """How many points were built and run."""
        return sum(each.is_trial for each in self.log)

    def fresh(self, random: Random, count: int, but: Sequence[Point] = ()) -> list[Point]:
        """Random points that are neither taken nor excluded; fewer if the space has no more."""
        found = dict.fromkeys(but)
        given = len(found)
        for _ in range(DRAWS * count):
            if len(found) - given == count:
                break
            point = self.space.drawn(random)
            if point not in self.taken:
                found[point] = None
        if len(found) - given < count and self.space.size > 0:
            # Few are left: walk over all of them from somewhere.
            start = random.randrange(self.space.size)
            for step in range(min(self.space.size, len(self.taken) + len(found) + count)):
                if len(found) - given == count:
                    break
                point = point_at(self.space, (start + step) % self.space.size)
                if point not in self.taken:
                    found[point] = None
        return list(found)[given:]


DRAWS = 8  # how often a draw is repeated before the rest of a space is walked over


def point_at(space: Space, index: int) -> Point:
    """The point with a number; `space.points()` has them in this order."""
    for number, sketch in enumerate(space.sketches):
        if index < sketch.size:
            decisions = list[tuple[int, ...]]()
            for support in reversed(sketch.supports):
                members = support.members
                index, at = divmod(index, len(members))
                decisions.append(members[at])
            return Point(number, tuple(reversed(decisions)))
        index -= sketch.size
    raise IndexError(f"the space has {space.size} points")


def index_of(space: Space, point: Point) -> int:
    """The number of a point; `point_at(space, index_of(space, point)) == point`."""
    sketch = space.sketches[point.sketch]
    index = 0
    for support, decision in zip(sketch.supports, point.decisions, strict=True):
        index = index * len(support.members) + support.members.index(decision)
    return index + sum(each.size for each in space.sketches[: point.sketch])


class Explorer(Protocol[M]):
    """Chooses the next points; a stateless value."""

    @property
    def name(self) -> str:
        """The name in records; explorers that choose differently have different names."""
        ...

    def chosen(
        self, known: ObservedSpace, memory: M | None, random: Random
    ) -> tuple[M, Sequence[Point]]:
        """What it remembers now, nothing at first, and the next batch; none at the end."""
        ...


@frozen(eq=False)
class SearchState(Generic[M]):
    """The state of a search: a value, replaced at every step."""

    known: ObservedSpace
    seed: int
    memory: M | None = None
    round: int = 0
    pending: tuple[Point, ...] = ()  # the batch that is out
    late: tuple[Point, ...] = ()  # what was out of the batch before when this one was asked for
    arrived: tuple[Observation, ...] = ()  # what has been observed since it went out
    finished: bool = False

    @property
    def waiting(self) -> tuple[Point, ...]:
        """The pending points."""
        here = {each.point for each in self.arrived}
        return tuple([each for each in (*self.late, *self.pending) if each not in here])


@frozen
class Policy(Generic[M]):
    """The fold of an explorer."""

    explorer: Explorer[M]

    @property
    def name(self) -> str:
        return self.explorer.name

    def begin(self, space: Space, seed: int) -> SearchState[M]:
        """The initial state; the first batch comes with the first step."""
        return SearchState(ObservedSpace(space), seed)

    def step(
        self, state: SearchState[M], observations: Sequence[Observation] = ()
    ) -> tuple[SearchState[M], tuple[Point, ...]]:
        """Adds observations; returns the new state and the points to try."""
        proposals = list[Point]()
        left = list(reversed(observations))
        while True:
            waiting = dict.fromkeys(state.waiting)
            came = list(state.arrived)
            while left and (waiting or state.finished):
                came.append(left.pop())
                waiting.pop(came[-1].point, None)
            state = evolve(state, arrived=tuple(came))
            if waiting or state.finished:
                return state, tuple(proposals)
            state = self._next(state)
            proposals += state.pending

    def ahead(
        self, state: SearchState[M], observations: Sequence[Observation] = ()
    ) -> tuple[SearchState[M], tuple[Point, ...]]:
        """Adds observations; returns the batch to try after the pending one, or nothing if an
        earlier one is still pending or nothing is known."""
        state = evolve(state, arrived=(*state.arrived, *observations))
        known = _learned(state)
        waiting = state.waiting
        if state.finished or not known.log or not set(waiting).isdisjoint(state.late):
            return state, ()
        # Pending points teach nothing and are not proposed again, like refused ones.
        out = [Observation(point, None, "refused") for point in waiting]
        masked = ObservedSpace(known.space, (*known.log, *out))
        memory, points = self._chosen(state, masked)
        batch = tuple([point for point in dict.fromkeys(points) if point not in masked.taken])
        if not batch:
            return state, ()
        return SearchState(known, state.seed, memory, state.round + 1, batch, waiting), batch

    def _next(self, state: SearchState[M]) -> SearchState[M]:
        """The next round, after a batch that is complete."""
        known = _learned(state)
        memory, points = self._chosen(state, known)
        batch = tuple(dict.fromkeys(points))
        return SearchState(known, state.seed, memory, state.round + 1, batch, finished=not batch)

    def _chosen(self, state: SearchState[M], known: ObservedSpace) -> tuple[M, Sequence[Point]]:
        random = Random(f"{state.seed}/{state.round}")
        with paused():  # candidates are lowered by the dozen
            chosen = self.explorer.chosen(known, state.memory, random)
        age()
        return chosen


def _learned(state: SearchState[M]) -> ObservedSpace:
    """The knowledge with everything that arrived, in the order of proposals."""
    place = {point: n for n, point in enumerate((*state.late, *state.pending))}
    came = sorted(state.arrived, key=lambda each: place.get(each.point, -1))
    return ObservedSpace(state.known.space, (*state.known.log, *came))
