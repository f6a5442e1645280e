"""The tuning loop: tasks, a policy, a measurer and a database make records.

The default of every task is timed first.  Then the task that promises most is taken
(`plica.search.schedule_tasks`), its policy proposes, proposals are measured, and each record is on
the disk before it is counted.  Meanwhile a thread asks the policy of the next task, or that of the
only task.  Trials that the database holds of this very run (work, machine, policy, seed, versions)
are not measured again: a run that was killed continues when it is run again, with the same
proposals.  A point that is the same program as one that was tried, by the laws of schedule steps,
takes its cost and is no trial.  At the end the best few of each task are timed in turns with its
default, which stays the best unless one is clearly faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from attrs import evolve, field, frozen

from plica.core.deadline import DeadlinePassed, check_deadline, deadline, seconds_left
from plica.search.course import Course, Listener, TuningSubject
from plica.search.measure import Measured, Measurer, SpaceWork, ranked
from plica.search.measure.process import PATIENT
from plica.search.measure.stop import give_way
from plica.search.observation import Observation, is_faster
from plica.search.policy.fold import ObservedSpace, Policy, SearchState
from plica.search.record.database import Database
from plica.search.record.order import FINAL
from plica.search.record.record import Record, record
from plica.search.schedule_tasks import Standing, gain, next_task
from plica.search.space import Point, Space
from plica.search.twin import Twins, twins

FINALISTS: Final = 4  # how many of a task are timed once more
MAX_DEFAULTS_AHEAD: Final = 4  # how many defaults are built while one is timed
NEARLY: Final = 0.5  # of the best promise is enough for a task that has its proposals
BARREN: Final = 512  # a task is given up after this many refusals with no trial between them

LATE: Final = "timeout"

BROKEN: Final = ("build", "wrong", "crash", LATE)  # errors of a default that end a search

T = TypeVar("T")
Versions: TypeAlias = tuple[tuple[str, str], ...]
Opening: TypeAlias = tuple[SearchState[Any], tuple[Point, ...]]  # as of an explorer's memory


@runtime_checkable
class Arbiter(Protocol):
    """A measurer that can also time a few points alternately."""

    def finals(
        self, task: SpaceWork, space: Space, points: Sequence[Point], rounds: int = 0
    ) -> tuple[Measured, ...]: ...


@runtime_checkable
class Preparer(Protocol):
    """A measurer that can begin to build what it will be asked for."""

    def prepare(self, task: SpaceWork, space: Space, points: Sequence[Point]) -> None: ...


@runtime_checkable
class Bounded(Protocol):
    """A measurer that stops at a deadline of the monotonic clock."""

    until: float


@frozen(eq=False)
class Run:
    """The identity of a run: where, how, with which seed, and by which compiler."""

    policy: Policy[Any]  # what an explorer remembers is its own affair
    measurer: Measurer
    database: Database
    target: str  # the fingerprint of the machine
    seed: int = 0
    versions: Versions = ()
    twins: Twins = twins  # which points are the same program

    def record(self, subject: TuningSubject, of: Measured, trial: int, suffix: str = "") -> Record:
        """The record of a measurement."""
        return record(
            subject.task.key,
            self.target,
            subject.space.trace(of.point).to_json(),
            subject.space.sketches[of.point.sketch].name,
            of.times,
            noise=of.noise,
            seed=self.seed,
            versions=self.versions,
            error="" if of.status == "ok" else of.status,
            policy=self.policy.name + suffix,
            message=of.message or subject.space.sketches[of.point.sketch].loops_digest,
            trial=trial,
        )

    def known(self, subject: TuningSubject) -> dict[tuple[str, str], Record]:
        """The records of this run in the database, by form and trace. A failed default is retried:
        the cause may be gone."""
        return {
            (each.form, each.trace_json): each
            for each in self.database.all(subject.task.key, self.target)
            if each.seed == self.seed
            and each.policy == self.policy.name
            and each.versions == self.versions
            and not (each.error in BROKEN and each.trial == 0)
        }

    def start(self, subject: TuningSubject) -> _Search:
        """The initial search for one piece of work: its default comes first."""
        if not subject.space.sketches:
            # Nothing about this work can be decided.
            over = SearchState[Any](ObservedSpace(subject.space), self.seed, finished=True)
            return _Search(Course(subject), over, (), {})
        return _Search(Course(subject), None, (subject.space.default,), self.known(subject))

    def opened(self, subject: TuningSubject) -> Opening:
        """A policy's first proposal, and its state."""
        return self.policy.step(self.policy.begin(subject.whole.space, self.seed))

    def asked(self, search: _Search, opened: Opening | None = None) -> _Search:
        """A search after its policy has proposed; nothing where the default failed."""
        if search.left:
            return search
        if search.state is not None:
            state, more = self.policy.step(search.state, search.unseen)
            return evolve(search, state=state, left=more, unseen=())
        seen = {observation.point: observation for observation in search.course.observations}
        if any(observation.error in BROKEN for observation in seen.values()):
            over = SearchState[Any](ObservedSpace(search.course.subject.space), self.seed)
            return evolve(search, state=evolve(over, finished=True))
        state, first = opened or self.opened(search.course.subject)
        search = evolve(search, course=evolve(search.course, subject=search.course.subject.whole))
        state, more = self.policy.step(state, tuple(seen.values()))
        left = tuple([point for point in (*first, *more) if point not in seen])
        return evolve(search, state=state, left=left)

    def further(self, search: _Search) -> _Search:
        """A search whose policy has proposed the batch after the pending one."""
        assert search.state is not None
        state, more = self.policy.ahead(search.state, search.unseen)
        return evolve(search, state=state, left=more, unseen=())


@frozen(eq=False)
class _Search:
    """A search in progress: a value, replaced with every batch."""

    course: Course
    state: SearchState[Any] | None  # none before the policy was asked
    left: tuple[Point, ...]  # what was proposed and has not been observed
    known: dict[tuple[str, str], Record]
    barren: int = 0
    unseen: tuple[Observation, ...] = ()  # what was observed and the policy has not been told
    classes: Mapping[str, Point] = field(factory=dict[str, Point])  # the first point of each

    @property
    def standing(self) -> Standing:
        over = not self.left and self.state is not None and not self.unseen
        over = over or self.barren >= BARREN
        subject = self.course.subject
        weight, work = float(subject.task.weight), (subject.operations, subject.bytes)
        return Standing(weight, self.course.batches, over, *work)


def tuned(
    subjects: Sequence[TuningSubject],
    run: Run,
    trials: int,
    *,
    seconds: float | None = None,
    listener: Listener | None = None,
    clock: Callable[[], float] = time.monotonic,
    finals: bool = True,
) -> tuple[Course, ...]:
    """Searches until the trials or the seconds are used up, or nothing is left to try. Pending
    proposals and measurements are then dropped without a record.

    Trials of an earlier run with the same policy and seed count: running again with the same number
    of trials measures only the missing ones.
    """
    start = clock()
    end = inf if seconds is None else time.monotonic() + seconds
    if isinstance(run.measurer, Bounded):
        run.measurer.until = end
    searches = [run.start(subject) for subject in subjects]

    def is_time() -> bool:
        return seconds is None or _is_time(searches, clock() - start, seconds)

    with deadline(end):
        proposals = _Proposals(run, searches)
        try:
            _search(searches, run, proposals, trials, is_time, listener)
        except DeadlinePassed:
            pass  # what was under way is lost
        finally:  # an interrupt waits for no proposal that has not begun
            proposals.close()
        courses = tuple([search.course for search in searches])
        return _all_decided(courses, run) if finals else courses


def _search(  # noqa: PLR0917  # as `tuned`
    searches: list[_Search],
    run: Run,
    proposals: _Proposals,
    trials: int,
    is_time: Callable[[], bool],
    listener: Listener | None,
) -> None:
    """Replaces searches by how they go on, batch by batch."""
    spent = 0
    while spent < trials and is_time():
        if (number := proposals.next([each.standing for each in searches])) is None:
            break

        def told(course: Course, number: int = number) -> None:
            if listener is not None:
                courses = [each.course for each in searches]
                courses[number] = course
                listener(courses, number, sum(each.trials for each in courses))

        _prepare_defaults(run, searches, number)
        search = searches[number] = proposals.of(number, searches[number])
        standings = [each.standing for each in searches]
        is_last = len(search.left) >= trials - spent
        search = proposals.begin(standings, number, searches, is_last)
        if search.left:
            search = _batch(search, run, trials - spent, told, is_time)
        searches[number] = search
        spent = sum(each.course.trials for each in searches)


class _Proposals:
    """What policies propose for one task while another is measured; that changes no proposal."""

    def __init__(self, run: Run, searches: Sequence[_Search]) -> None:
        # It runs beside builds, and pauses during timing like these.
        self._run = run
        self._thread = ThreadPoolExecutor(1, "plica-propose", give_way, (PATIENT,))
        self._ahead: dict[int, Future[_Search]] = {}
        self._own: int | None = None
        """The task that is measured while its own policy proposes, if any."""
        self._opened: Future[Opening] | None = None
        if len(searches) == 1 and searches[0].state is None:
            # No other work could be worth more: it begins while the default is built and timed.
            self._opened = self._submitted(partial(self._open, searches[0]))

    def next(self, standings: Sequence[Standing]) -> int | None:
        """The task that promises most, or nearly as much and has its proposals."""
        best = next_task(standings)
        if best is None or not self._ahead or best in self._ahead:
            return best
        gains = {each: gain(standings[each], standings) for each in (best, *self._ahead)}
        ready = [each for each in self._ahead if gains[each] >= NEARLY * gains[best]]
        return max(ready, key=lambda each: gains[each], default=best)

    def of(self, number: int, search: _Search) -> _Search:
        """The search of a task once its policy was asked."""
        proposal = self._ahead.pop(number, None)
        if proposal is None:
            is_first = search.state is None and not search.left and self._opened is not None
            opened = _awaited(self._opened) if is_first and self._opened is not None else None
            return self._run.asked(search, opened)
        if self._own != number:
            return _awaited(proposal)
        self._own = None
        proposed = _awaited(proposal)
        return self._run.asked(evolve(search, state=proposed.state, left=proposed.left))

    def begin(
        self, standings: list[Standing], number: int, searches: Sequence[_Search], is_last: bool
    ) -> _Search:
        """Queries in the background the policy of the task that would be next, or that of the same
        task; returns the search to be measured."""
        mine = searches[number]
        if any(not standing.best for standing in standings):
            return mine  # defaults come first
        standings[number] = evolve(standings[number], finished=True)
        other = next_task(standings)
        if other is not None:
            if other not in self._ahead and not searches[other].left:
                self._ahead[other] = self._submitted(
                    partial(self._proposed, "asked", searches[other])
                )
        elif mine.left and mine.state is not None and not is_last:
            self._own = number
            self._ahead[number] = self._submitted(partial(self._proposed, "further", mine))
            return evolve(mine, unseen=())  # its policy is being told
        return mine

    def _open(self, search: _Search) -> Opening:
        """The first proposal of a search's policy, built after the default."""
        whole = search.course.subject.whole
        opened = self._run.opened(whole)
        left = tuple([point for point in opened[1] if point not in search.left])
        _prepare(self._run, evolve(search, course=Course(whole), left=left))
        return opened

    def _proposed(self, how: Literal["asked", "further"], search: _Search) -> _Search:
        """A search after its policy has proposed, which is built while others are measured."""
        found = self._run.asked(search) if how == "asked" else self._run.further(search)
        _prepare(self._run, found)
        return found

    def _submitted(self, make: Callable[[], T]) -> Future[T]:
        """Submits work to the thread, within the caller's deadline."""
        return self._thread.submit(copy_context().run, make)

    def close(self) -> None:
        """Cancels estimates that are no longer needed."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _awaited(proposal: Future[T]) -> T:
    """The thread's proposal, within the remaining time."""
    left = seconds_left()
    try:
        return proposal.result(None if left == inf else max(0.0, left))
    except TimeoutError:
        raise DeadlinePassed from None


def _prepare_defaults(run: Run, searches: Sequence[_Search], number: int) -> None:
    """Have the defaults of the next few built while this one is timed."""
    if searches[number].course.observations:
        return
    coming = [each for each in searches[number + 1 :] if not each.course.observations]
    for search in coming[:MAX_DEFAULTS_AHEAD]:
        _prepare(run, search)


def _prepare(run: Run, search: _Search) -> None:
    """Starts building proposals in advance."""
    if isinstance(run.measurer, Preparer):
        subject = search.course.subject
        if missing := [point for point in search.left if _recorded(search, point) is None]:
            run.measurer.prepare(subject.task, subject.space, missing)


def _all_decided(courses: Sequence[Course], run: Run) -> tuple[Course, ...]:
    """All last comparisons, the candidates of the next built while those of one are timed."""
    found: list[Course] = []
    with suppress(DeadlinePassed):
        for at, course in enumerate(courses):
            check_deadline()
            if isinstance(run.measurer, Preparer) and isinstance(run.measurer, Arbiter):
                for each in courses[at : at + 2]:
                    run.measurer.prepare(each.subject.task, each.subject.space, _finalists(each))
            found.append(_decided(course, run))
    return (*found, *courses[len(found) :])


def _batch(
    search: _Search,
    run: Run,
    most: int,
    told: Callable[[Course], None],
    is_time: Callable[[], bool],
) -> _Search:
    """One batch of a search, or as much of it as trials and time are left for."""
    subject = search.course.subject
    points = search.left[:most]
    found = {point: _recorded(search, point) for point in points}
    classes, same = run.twins(subject.space, points, search.classes)
    same = {point: first for point, first in same.items() if found[point] is None}
    missing = [point for point in points if found[point] is None and point not in same]
    course = search.course
    before = len(course.observations)
    place = {point: before + n for n, point in enumerate(points)}

    def arrived(of: Measured) -> None:
        nonlocal course
        has_time = is_time()
        if of.status == LATE and not has_time:
            raise DeadlinePassed  # it was given up: nothing is known of it
        kept = run.record(subject, of, place[of.point])
        # A default that takes too long is late, not broken: a later run tries it again.
        if search.state is not None or of.status != LATE:
            run.database.put(kept)
        course = _with(_observed(course, of.point, kept), of)
        found[of.point] = kept
        told(course)
        if not has_time:
            raise DeadlinePassed

    for point in points:
        if (kept := found[point]) is not None:
            course = _observed(course, point, kept)
    if len(missing) < len(points):
        told(course)
    if missing:
        with suppress(DeadlinePassed):
            run.measurer.measure(subject.task, subject.space, missing, arrived)
    known = {observation.point: observation for observation in course.observations}
    for point, first in same.items():
        if first in known:
            twin = evolve(known[first], point=point, twin=first)
            course = evolve(course, observations=(*course.observations, twin))
    came = _in_order(course.observations[before:], points)
    course = evolve(
        course, observations=(*course.observations[:before], *came), batches=_batches(course)
    )
    barren = 0 if any(observation.is_trial for observation in came) else search.barren + len(came)
    unseen = () if search.state is None else (*search.unseen, *came)
    done = {observation.point for observation in came}
    left = tuple([point for point in search.left if point not in done])
    return _Search(course, search.state, left, search.known, barren, unseen, classes)


def _in_order(came: Sequence[Observation], points: Sequence[Point]) -> tuple[Observation, ...]:
    by_point = {observation.point: observation for observation in came}
    return tuple([by_point[point] for point in points if point in by_point])


def _recorded(search: _Search, point: Point) -> Record | None:
    space = search.course.subject.space
    form = space.sketches[point.sketch].name
    return search.known.get((form, space.trace(point).to_json()))


def _observed(course: Course, point: Point, of: Record) -> Course:
    """Adds a record's observation, so that a resumed run sees what the first one saw."""
    seen = Observation(point, of.cost, of.error, of.noise)
    is_broken = not course.observations and of.error in BROKEN
    how = (of.message or of.error) if is_broken else course.broken
    return evolve(course, observations=(*course.observations, seen), broken=how)


def _with(course: Course, of: Measured) -> Course:
    stages = dict(course.stages)
    for name, seconds in of.stages.items():
        stages[name] = stages.get(name, 0.0) + seconds
    return evolve(course, stages=stages, measured=course.measured + 1)


def _batches(course: Course) -> tuple[float | None, ...]:
    curve = course.curve
    return (*course.batches, curve[-1] if curve else None)


def _is_time(searches: Sequence[_Search], gone: float, seconds: float) -> bool:
    """Whether there is time for another batch and the final comparisons."""
    measured = sum(search.course.measured for search in searches)
    finals = sum(len(_finalists(search.course)) for search in searches)
    return gone + gone / max(1, measured) * finals < seconds


def _finalists(course: Course) -> tuple[Point, ...]:
    """The points to time again: the best few after the default; none if the default is clearly
    best."""
    worked = [e for e in course.observations if e.cost is not None and e.twin is None]
    best = sorted(worked, key=lambda each: each.cost or 0.0)[:FINALISTS]
    if len(best) < 2:
        return ()
    default = [each for each in worked if each.point == course.subject.space.default]
    if best[0] in default and is_faster(best[0], best[1]):
        return ()
    rest = [observation.point for observation in best if observation not in default]
    return tuple([observation.point for observation in default] + rest[: FINALISTS - len(default)])


def _decided(course: Course, run: Run) -> Course:
    """The course with the winner of its finalists, timed alternately."""
    points = _finalists(course)
    if not isinstance(run.measurer, Arbiter) or not points:
        return course
    timed = run.measurer.finals(course.subject.task, course.subject.space, points)
    for trial, measured in enumerate(timed):
        if measured.status == LATE:
            continue
        run.database.put(run.record(course.subject, measured, trial, FINAL))
    if not (order := ranked(timed)):
        return course
    winner, default = order[0], course.subject.space.default
    stayed = next((measured.cost for measured in order if measured.point == default), None)
    won = Observation(winner.point, winner.cost, "", winner.noise)
    return evolve(course, winner=won, stayed=stayed)
