"""The local measurer: candidates are built in some processes and timed in one other.

The timing slot: at most one kernel is timed on the same cores at a time, across processes.

It is a file lock per core that this process may use, released by the system if its holder dies.
Locks are taken in a fixed order, so there is no deadlock.

A deadline of who waits ends the wait.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from math import inf
from pathlib import Path
from queue import SimpleQueue
from time import sleep
from typing import Final, Protocol

from attrs import frozen

from plica.codegen.backend import AnyTarget, backend_of, find_target
from plica.core import encode
from plica.core.deadline import check_deadline, seconds_left
from plica.runtime.host import cores
from plica.search.lowered import LOWERED
from plica.search.measure.frame import MessageFrame
from plica.search.measure.job import MeasureJob, SpaceWork, job_of
from plica.search.measure.outcome import (
    Measured,
    Outcome,
    Status,
    TrialLimits,
    failed,
    measured,
    with_stages,
)
from plica.search.measure.process import MAIN, Lost, Worker
from plica.search.measure.stop import quiet, resume
from plica.search.space import Point, Space

MAX_BUILDERS: Final = 8

Arrived = Callable[[Measured], None]  # what is told of each outcome as soon as there is one


class Measurer(Protocol):
    """Measures points; the outcomes are in the order of the points."""

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]: ...


@frozen(eq=False)
class BuiltObjects:
    """Objects, and how long they took."""

    objects: tuple[bytes, ...]
    stages: dict[str, float]


class LocalMeasurer:
    """A measurer in processes of this machine."""

    def __init__(
        self,
        target: AnyTarget | None = None,
        limits: TrialLimits | None = None,
        builders: int = 0,
        main: str = MAIN,
    ) -> None:
        self.limits = limits or TrialLimits()
        here = find_target("cpu")
        self.target = target or backend_of(here).with_threads(here, self.limits.threads)
        if main == MAIN:  # another worker has another machine beside this one
            backend_of(self.target).check_here(self.target)
        # One per core: builds yield to timing.
        self._main = main
        self._count = builders or min(MAX_BUILDERS, cores())
        self._runner = Worker(self.limits, main=main)
        self._builders = [Worker(self.limits, True, main) for _ in range(self._count)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for builder in self._builders:
            self._idle.put(builder)
        self._ahead = ThreadPoolExecutor(self._count, "plica-build")
        self.until = inf
        """The deadline of running work, by the monotonic clock."""
        self._bars: dict[str, float] = {}
        self._prepared: dict[str, Future[BuiltObjects | Outcome]] = {}

    def prepare(self, task: SpaceWork, space: Space, points: Sequence[Point]) -> None:
        """Starts building points that will be requested soon."""
        for job in [job_of(task, space, point, self.target) for point in points]:
            if job.identity not in self._prepared:
                self._prepared[job.identity] = self._ahead.submit(self._build, job)

    def _begun(self, jobs: Sequence[MeasureJob]) -> list[Future[BuiltObjects | Outcome]]:
        """The builds of some jobs, started if necessary."""
        futures: list[Future[BuiltObjects | Outcome]] = []
        for job in jobs:
            if job.identity in self._prepared:
                futures.append(self._prepared.pop(job.identity))
            else:
                futures.append(self._ahead.submit(self._build, job))
        return futures

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """The outcomes of points, in order; `arrived` is called with each as soon as it is
        known."""
        jobs = [job_of(task, space, each, self.target) for each in points]
        found = []
        with closing(self.outcomes(jobs)) as outcomes:
            for point, outcome in zip(points, outcomes, strict=True):
                found.append(measured(point, outcome))
                if arrived is not None:
                    arrived(found[-1])
        return tuple(found)

    def outcomes(self, jobs: Sequence[MeasureJob]) -> Generator[Outcome, None, None]:
        """The outcomes of jobs, in order, each as soon as it is known."""
        pending = self._begun(jobs)
        self._runner.begin()
        try:
            for job, future in zip(jobs, pending, strict=True):
                ready = future.result()
                yield ready if isinstance(ready, Outcome) else self._run(job, ready)
        finally:
            _forget(pending)

    def finals(
        self, task: SpaceWork, space: Space, points: Sequence[Point], rounds: int = 0
    ) -> tuple[Measured, ...]:
        """The times of valid points, measured alternately, round by round."""
        jobs = [job_of(task, space, point, self.target) for point in points]
        outcomes = self.final_outcomes(jobs, rounds)
        return tuple([measured(p, outcome) for p, outcome in zip(points, outcomes, strict=True)])

    def final_outcomes(self, jobs: Sequence[MeasureJob], rounds: int = 0) -> tuple[Outcome, ...]:
        """The times of jobs, measured alternately; `ROUNDS` of them by default."""
        pending = self._begun(jobs)
        made = [each.result() for each in pending]
        ready = [
            (job, of) for job, of in zip(jobs, made, strict=True) if isinstance(of, BuiltObjects)
        ]
        timed = iter(self._final(ready, rounds) if ready else ())
        return tuple([each if isinstance(each, Outcome) else next(timed) for each in made])

    def close(self) -> None:
        """End all processes."""
        for worker in (self._runner, *self._builders):
            worker.close()
        self._ahead.shutdown(cancel_futures=True)
        for builder in self._builders:
            builder.close()  # one that was asked meanwhile

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _others(self) -> list[int]:
        """The processes that wait while something is timed."""
        numbers = [builder.number for builder in self._builders] if self.limits.alone else []
        return [number for number in numbers if number is not None]

    def _build(self, job: MeasureJob) -> BuiltObjects | Outcome:
        builder = self._idle.get()
        # The proposer may have lowered it, which is half of the build time.
        lowered = LOWERED.known(job.trace, job.kernel) if self._main == MAIN else None
        given = () if lowered is None else (encode.to_json(lowered).encode(),)
        text = (job if lowered is None else job.unscheduled).to_json()
        try:
            asked = MessageFrame({"do": "build", "job": text}, given)
            answer = builder.ask(asked, self.limits.build_seconds, True, self.until)
        finally:
            self._idle.put(builder)
        if isinstance(answer, Lost):
            return _lost(answer, "build", "build", {})
        if "outcome" in answer.head:
            return Outcome.from_json(answer.head["outcome"])
        return BuiltObjects(answer.blobs, answer.head["stages"])

    def _run(self, job: MeasureJob, ready: BuiltObjects) -> Outcome:
        bar = self._bars.get(job.about)
        text = job.unscheduled.to_json()
        head = {"do": "run", "job": text, "bar": bar, "others": self._others()}
        with slot(), quiet(self.limits.alone):
            what, most = MessageFrame(head, ready.objects), self.limits.run_seconds
            answer = self._runner.ask(what, most, until=self.until)
        if isinstance(answer, Lost):
            resume(self._others())
            return _lost(answer, "crash", "run", ready.stages)
        outcome = with_stages(Outcome.from_json(answer.head["outcome"]), ready.stages)
        if outcome.cost is not None:
            self._bars[job.about] = outcome.cost if bar is None else min(bar, outcome.cost)
        return outcome

    def _final(self, of: Sequence[tuple[MeasureJob, BuiltObjects]], rounds: int) -> list[Outcome]:
        head = {
            "do": "final",
            "jobs": [job.unscheduled.to_json() for job, _ in of],
            "counts": [len(ready.objects) for _, ready in of],
            "rounds": rounds,
            "others": self._others(),
        }
        blobs = tuple([blob for _, ready in of for blob in ready.objects])
        with slot(), quiet(self.limits.alone):
            most = self.limits.run_seconds * len(of)
            answer = self._runner.ask(MessageFrame(head, blobs), most, until=self.until)
        if isinstance(answer, Lost):
            resume(self._others())
            return [_lost(answer, "crash", "final", ready.stages) for _, ready in of]
        texts = answer.head["outcomes"]
        pairs = zip(texts, of, strict=True)
        return [with_stages(Outcome.from_json(text), ready.stages) for text, (_, ready) in pairs]


def _lost(how: Lost, status: Status, stage: str, stages: dict[str, float]) -> Outcome:
    return failed("timeout" if how.late else status, stage, how.how, stages)


def _forget(pending: Sequence[Future[BuiltObjects | Outcome]]) -> None:
    """Cancels builds that are no longer needed."""
    for each in pending:
        each.cancel()


# --- the timing slot ---------------------------------------------------------------------------


POLL_SECONDS: Final = 0.02


def slot_paths() -> list[Path]:
    """The files of this user and of the cores that this process may use."""
    who = os.getuid() if hasattr(os, "getuid") else 0
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return [Path(tempfile.gettempdir()) / f"plica-measuring-{who}-{core}.lock" for core in cores]


@contextmanager
def slot() -> Iterator[None]:
    """Holds the slot, waiting for it if necessary."""
    if os.name != "posix":
        yield  # there is no such lock, and no pool of processes either
        return
    with ExitStack() as held:
        for path in slot_paths():
            held.enter_context(_held(path))
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    import fcntl

    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(path, flags, 0o600)
    try:
        if seconds_left() == inf:
            fcntl.flock(file, fcntl.LOCK_EX)
        while seconds_left() < inf:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            check_deadline()
            sleep(POLL_SECONDS)
        yield
    finally:
        os.close(file)
