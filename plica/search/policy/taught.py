"""Taught: the guided search after lessons from other work.

    model_of(lessons, features)      what was learned from all of them, each by its own best
    taught(machine, lessons)         the policy: begins with what was fast there
    lessons_of(subjects, …)          what a database holds of some work, as lessons

A run after lessons is the same run as long as the lessons are the same: its name has a digest of
them.  What such a run measured teaches no other, so that one that was stopped goes on.

>>> from plica.search.policy.example import SQUARE
>>> lesson = Lesson(SQUARE, (Observation(SQUARE.default, 1.0),))
>>> policy = taught(Machine(512, 32), (lesson,))
>>> policy.name.split("/")[0], policy.step(policy.begin(SQUARE, 0))[1][0] == SQUARE.default
('taught', True)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from plica.schedule.default.machine import Machine
from plica.search.model import Analytical, SummedTime
from plica.search.observation import Observation, point_text
from plica.search.policy.cost_judge import CostJudge, Features, stores
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.policy.guided import Guided, promising
from plica.search.policy.lesson import Lesson
from plica.search.record.apply import Applies, applied
from plica.search.record.order import FINAL
from plica.search.record.record import Record
from plica.search.space import Point, Space

TAUGHT: Final = "taught"
"""What names of such policies begin with."""


class TaughtPiece(Protocol):
    """Work, as far as its records go."""

    @property
    def key(self) -> str: ...


class TaughtSubject(Protocol):
    """Work, and the space of its schedules."""

    @property
    def task(self) -> TaughtPiece: ...

    @property
    def space(self) -> Space: ...


def taught(machine: Machine, lessons: Sequence[Lesson]) -> Policy[Any]:
    """The guided search after lessons; the plain one where there are none."""
    features = stores(machine)
    given = tuple([each for each in lessons if each.ranked])
    model = model_of(given, features).standing if given else SummedTime()
    judge = CostJudge(f"summed-time-{_digest(given)}", model, features, Analytical().cycles)
    return Policy(Guided(judge, lessons=given, word=TAUGHT))


def model_of(lessons: Sequence[Lesson], features: Features) -> SummedTime:
    """The model of what was seen of sketches that are fast; costs of one piece of work compare."""
    costs = [_fast(each) for each in lessons]
    packs = [features(of.space, list(mine)) for of, mine in zip(lessons, costs, strict=True)]
    whole = sum(packs[1:], packs[0])
    times = np.array([cost for mine in costs for cost in mine.values()])
    groups = np.repeat(np.arange(len(lessons)), [len(mine) for mine in costs])
    legal = np.flatnonzero(whole.is_legal)
    return SummedTime().fitted(whole[legal], times[legal], groups[legal])


def _fast(of: Lesson) -> dict[Point, float]:
    """The costs of points of sketches that were fast: nobody asks about others."""
    fast = promising(ObservedSpace(of.space, of.log))
    return {e.point: e.cost for e in of.log if e.cost is not None and e.point.sketch in fast}


def lessons_of(subjects: Iterable[TaughtSubject], records: Iterable[Record]) -> tuple[Lesson, ...]:
    """What records of other policies say of the work that is at hand; those that no longer apply
    say nothing."""
    by_key: dict[str, list[Record]] = {}
    for each in records:
        is_final = each.policy.endswith(FINAL)  # taken in turns: no time like the others
        if each.cost is not None and not is_final and not each.policy.startswith(TAUGHT):
            by_key.setdefault(each.key, []).append(each)
    found = []
    for subject in subjects:
        log: list[Observation] = []
        for each in by_key.get(subject.task.key, ()):
            now = applied(each, subject.space)
            if isinstance(now, Applies) and now.point is not None:
                log.append(Observation(now.point, each.cost, "", each.noise))
        if log:
            found.append(Lesson(subject.space, tuple(log)))
    return tuple(found)


def _digest(lessons: Sequence[Lesson]) -> str:
    lines = [
        f"{lesson.space.sketches[each.point.sketch].name} {point_text(each.point)} {each.cost!r}"
        for lesson in lessons
        for each in lesson.log
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
