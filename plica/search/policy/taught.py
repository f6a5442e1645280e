"""Taught: the guided search after lessons from other work.

    taught(machine, lessons)         the policy: begins with what was fast there
    lessons_of(subjects, …)          what a database holds of some work, as lessons
    precedents_of(subjects, …)       the fastest that it holds of any other work

>>> from plica.search.policy.example import SQUARE
>>> lesson = Lesson(SQUARE, (Observation(SQUARE.default, 1.0),))
>>> policy = taught(Machine(512, 32), (lesson,))
>>> policy.name.split("/")[0], policy.step(policy.begin(SQUARE, 0))[1][0] == SQUARE.default
('taught', True)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import evolve

from plica.core import Malformed
from plica.schedule.default.machine import Machine
from plica.schedule.trace import Trace
from plica.search.course import TuningSubject
from plica.search.observation import Observation, point_text
from plica.search.policy.fold import Policy
from plica.search.policy.guided import Guided
from plica.search.policy.lesson import Lesson, Precedent
from plica.search.policy.named import learned
from plica.search.record.apply import Applies, applied
from plica.search.record.order import FINAL
from plica.search.record.record import Record

TAUGHT: Final = "taught"  # what names of such policies begin with


def taught(
    machine: Machine, lessons: Sequence[Lesson], precedents: Sequence[Precedent] = ()
) -> Policy[Any]:
    """The guided search with lessons and precedents; the plain one if there are none."""
    given, others = tuple([lesson for lesson in lessons if lesson.ranked]), tuple(precedents)
    judge = learned(machine)
    judge = evolve(judge, name=f"{judge.name}-{_digest(given, others)}")
    return Policy(Guided(judge, judge, lessons=given, precedents=others, word=TAUGHT))


def lessons_of(subjects: Iterable[TuningSubject], records: Iterable[Record]) -> tuple[Lesson, ...]:
    """What records of other policies say of the work at hand, as far as they still apply."""
    by_key = _by_key(records)
    found = []
    for subject in subjects:
        log: list[Observation] = []
        for record in by_key.get(subject.task.key, ()):
            now = applied(record, subject.space)
            if isinstance(now, Applies) and now.point is not None:
                log.append(Observation(now.point, record.cost, "", record.noise))
        if log:
            found.append(Lesson(subject.space, tuple(log)))
    return tuple(found)


def precedents_of(
    subjects: Iterable[TuningSubject], records: Iterable[Record]
) -> tuple[Precedent, ...]:
    """The fastest schedule of each piece of other work in records of other policies."""
    here = {subject.task.key for subject in subjects}
    found = []
    for key, mine in sorted(_by_key(records).items()):
        best = min(mine, key=lambda each: (each.cost or 0.0, each.identity))
        if key not in here:
            try:
                found.append(Precedent(best.form, Trace.from_json(best.trace_json)))
            except Malformed:
                continue
    return tuple(found)


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The trials that worked of runs that had no lessons themselves, by their work."""
    found: dict[str, list[Record]] = {}
    for record in records:
        is_final = record.policy.endswith(FINAL)  # taken in turns: no time like the others
        if record.cost is not None and not is_final and not record.policy.startswith(TAUGHT):
            found.setdefault(record.key, []).append(record)
    return found


def _digest(lessons: Sequence[Lesson], precedents: Sequence[Precedent]) -> str:
    lines = [
        f"{lesson.space.sketches[each.point.sketch].name} {point_text(each.point)} {each.cost!r}"
        for lesson in lessons
        for each in lesson.log
    ]
    lines += [f"{precedent.form} {precedent.trace.to_json()}" for precedent in precedents]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
