"""The worker: a process that builds and runs candidates, and may die of it.

It reads frames from its standard input and answers each on its standard output, one at a time:

    build   a job                      its objects, or why there are none
    run     a job and its objects      right or wrong, and how long it takes
    final   several of them            how long each takes, round by round
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from time import perf_counter
from typing import IO, Final, Protocol, TypeAlias

import numpy as np
from attrs import frozen

from plica.codegen.native import shape_of
from plica.core import CompilerBug, encode
from plica.core.collector import paused
from plica.ir.loop.statement import Kernel
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.artefact import ALIGNMENT, aligned_array
from plica.runtime.error import EvaluationError, PlicaError
from plica.runtime.port import Array
from plica.search.measure import frame
from plica.search.measure.build import Built, Loaded, built, table_of, target_of
from plica.search.measure.frame import MessageFrame
from plica.search.measure.job import MeasureJob
from plica.search.measure.outcome import Outcome, Status, TrialLimits, failed, ok
from plica.search.measure.reference import (
    FORMS,
    POISON,
    Reference,
    difference,
    disagreement,
    read_by,
    reference_of,
    written,
)
from plica.search.measure.stop import placed, stopped
from plica.search.measure.timing import KernelTiming, clock_for, flusher, interleaved, is_decided

ROUNDS: Final = 12  # how often each candidate of a final is timed

NO_MEMORY: Final = "There is not enough memory."

job_read: Final = lru_cache(maxsize=FORMS)(MeasureJob.from_json)
"""The job of a text, which those of a form share whose schedules are replayed already."""


class TrialCode(Protocol):
    """Code where it runs, with the memory that it reads and writes."""

    def difference(self) -> str:
        """Runs it once; returns an error in its output, or an empty text."""
        ...

    def timing(self, limits: TrialLimits, bar: float = math.inf) -> KernelTiming:
        """Ready to be timed."""
        ...

    def late_difference(self) -> str:
        """The error after timing, when rare races may have shown, or an empty text."""
        ...


@frozen(eq=False)
class TrialMachine:
    """How one kind of machine builds and runs candidates."""

    build: Callable[[MeasureJob, Kernel | None], Built]
    reference: Callable[[MeasureJob], Reference]
    load: Callable[[Sequence[bytes], MeasureJob, TrialLimits], TrialCode]
    status_of: Callable[[PlicaError], Status]  # of an error while a candidate runs
    compiler_error: str = ""  # the code of an error in what this compiler itself wrote
    passes: int = 1  # how often finals are timed anew, where they are not decided


class NativeCandidate:
    """Code of a processor in this process."""

    def __init__(self, objects: Sequence[bytes], job: MeasureJob, limits: TrialLimits) -> None:
        self._job, self._code = job, Loaded(objects, limits.threads)

    def difference(self) -> str:
        """As `TrialCode` says."""
        return difference(self._job, self._code)

    def timing(self, limits: TrialLimits, bar: float = math.inf) -> KernelTiming:
        """As `TrialCode` says."""
        job, code = self._job, self._code
        written(reference_of(job), job.kernel)
        arrays = _together(job.kernel, read_by(job))
        table, self._result = table_of(arrays), arrays[-1]
        flush = flusher(target_of(job).cache(3)) if limits.flush else None

        def repeat(count: int) -> None:
            code.run_table(table, count)

        return KernelTiming(repeat, clock_for(limits.threads), limits, flush, bar)

    def late_difference(self) -> str:
        """As `TrialCode` says."""
        return disagreement(self._result, reference_of(self._job).expected)


def _status_of(error: PlicaError) -> Status:
    """The reference had no such complaint as an evaluation error; else no code is loaded."""
    return "wrong" if isinstance(error, EvaluationError) else "refused"


PROCESSOR: Final = TrialMachine(built, reference_of, NativeCandidate, _status_of, passes=4)


def build(machine: TrialMachine, asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """The objects of a candidate."""
    start = perf_counter()
    try:
        lowered = encode.from_json(asked.blobs[0].decode()) if asked.blobs else None
        assert lowered is None or isinstance(lowered, Kernel)  # ours, as we wrote it
        made = machine.build(job_read(asked.head["job"]), lowered)
    except PlicaError as error:
        status: Status = "build" if error.code == machine.compiler_error else "refused"
        return _failure(status, "build", error.diagnostics[0].message, start)
    except CRASHES as error:  # a bug of ours, or LLVM refuses the code: one trial
        return _failure("build", "build", f"{type(error).__name__}: {error}", start)
    except MemoryError:
        return _failure("build", "build", NO_MEMORY, start)
    return MessageFrame({"stages": made.stages}, made.objects)


def run(machine: TrialMachine, asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """Whether a candidate is right, and its time."""
    start = perf_counter()
    job = job_read(asked.head["job"])
    try:
        machine.reference(job)
    except PlicaError as error:  # the work itself has no value
        return _failure("refused", "reference", error.diagnostics[0].message, start)
    try:
        candidate = machine.load(asked.blobs, job, limits)
        if wrong := candidate.difference():
            return _failure("wrong", "validate", wrong, start)
        validated = perf_counter()
        with stopped(asked.head["others"]), placed(limits.threads):
            times = candidate.timing(limits, asked.head["bar"] or math.inf).repeats()
        if wrong := candidate.late_difference():
            return _failure("wrong", "time", wrong, start)
    except PlicaError as error:
        return _failure(machine.status_of(error), "validate", sentence(error), start)
    except CompilerBug as error:
        return _failure("wrong", "validate", str(error), start)
    except MemoryError:
        return _failure("crash", "validate", NO_MEMORY, start)
    stages = {"validate": validated - start, "time": perf_counter() - validated}
    return MessageFrame({"outcome": ok(times, stages).to_json()})


def final(machine: TrialMachine, asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """The times of several candidates that passed before."""
    start = perf_counter()
    blobs = iter(asked.blobs)
    rounds: list[tuple[float, ...]] = []
    try:
        candidates = [
            machine.load(list(islice(blobs, count)), job_read(text), limits)
            for text, count in zip(asked.head["jobs"], asked.head["counts"], strict=True)
        ]
        timings = [candidate.timing(limits) for candidate in candidates]
        with stopped(asked.head["others"]), placed(limits.threads):
            for _ in range(machine.passes):
                rounds += interleaved(timings, asked.head["rounds"] or ROUNDS)
                if is_decided(rounds):
                    break
    except PlicaError as error:
        machine.status_of(error)  # ends a process whose device is lost
        raise
    stages = {"time": (perf_counter() - start) / max(1, len(timings))}
    outcomes = [ok(times, stages) for times in zip(*rounds, strict=True)]
    return MessageFrame({"outcomes": [outcome.to_json() for outcome in outcomes]})


def _together(kernel: Kernel, inputs: tuple[Array, ...]) -> list[Array]:
    """The parameters of a kernel one after the other in memory, as a plan puts them.

    At the starts of pages all of them would meet in the same lines of a cache.
    """
    shapes = [(shape_of(param), param.dtype.numpy) for param in kernel.params]
    sizes = [int(np.prod(shape, dtype=np.int64)) * kind.itemsize for shape, kind in shapes]
    room = aligned_array(sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
    room[:] = POISON
    arrays: list[Array] = []
    at = 0
    for (shape, kind), size in zip(shapes, sizes, strict=True):
        arrays.append(room[at : at + size].view(kind).reshape(shape))
        at += -(-size // ALIGNMENT) * ALIGNMENT
    for array, given in zip(arrays, inputs, strict=False):
        array[...] = given
    return arrays


def sentence(error: PlicaError) -> str:
    """The first message of an error and the value it reports."""
    first = error.diagnostics[0]
    return f"{first.message} {first.found or ''}".strip()


def _failure(status: Status, stage: str, message: str, start: float) -> MessageFrame:
    outcome: Outcome = failed(status, stage, message, {stage: perf_counter() - start})
    return MessageFrame({"outcome": outcome.to_json()})


Answer: TypeAlias = Callable[[MessageFrame, TrialLimits], MessageFrame]


def answers_of(machine: TrialMachine) -> Mapping[str, Answer]:
    """The handlers of a worker for a kind of machine, by request."""
    work = {"build": build, "run": run, "final": final}
    return {name: partial(answer, machine) for name, answer in work.items()}


def serve(
    given: IO[bytes], answers: IO[bytes], limits: TrialLimits, work: Mapping[str, Answer]
) -> None:
    """Answers frames until there are no more."""
    while (asked := frame.read(given)) is not None:
        own = asked.head["of_processor"]
        _end_after(asked.head["seconds"], own)
        answer = work[asked.head["do"]](asked, limits)
        _end_after(0.0, own)
        answers.write(frame.to_bytes(answer))
        answers.flush()


def _end_after(seconds: float, of_processor: bool) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF if of_processor else signal.ITIMER_REAL, seconds)


def main(work: Mapping[str, Answer] | None = None) -> None:
    """Limit this process, then serve."""
    limits = TrialLimits.from_json(sys.argv[1])
    # Output of libraries must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if os.name == "posix":
        import resource

        os.nice(int(sys.argv[2]))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.memory:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            most = limits.memory if hard < 0 else min(limits.memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with paused():
        serve(sys.stdin.buffer, answers, limits, work or answers_of(PROCESSOR))
