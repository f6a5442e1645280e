"""The worker: a process that builds and runs candidates, and may die of it.

It reads frames from its standard input and answers each on its standard output, one at a time:

    build   a job                      its objects, or why there are none
    run     a job and its objects      right or wrong, and how long it takes
    final   several of them            how long each takes, round by round

Every request has a number of seconds, of the clock or of the processor; the system ends the process
when they are over, even in the middle of native code.  Memory is limited from the start.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from time import perf_counter
from typing import IO, Final, TypeAlias

import numpy as np

from plica.codegen.native import shape_of
from plica.core import encode
from plica.core.collector import paused
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.statement import Kernel
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.artefact import ALIGNMENT, aligned_array
from plica.runtime.error import EvaluationError, PlicaError
from plica.runtime.port import Array
from plica.search.measure import frame
from plica.search.measure.build import Loaded, built, table_of, target_of
from plica.search.measure.frame import MessageFrame
from plica.search.measure.job import MeasureJob
from plica.search.measure.outcome import Outcome, Status, TrialLimits, failed, ok
from plica.search.measure.reference import (
    FORMS,
    POISON,
    difference,
    disagreement,
    read_by,
    reference_of,
    written,
)
from plica.search.measure.stop import placed, stopped
from plica.search.measure.timing import KernelTiming, clock_for, flusher, interleaved
from plica.search.measure.tournament import is_decided

ROUNDS: Final = 12  # how often each candidate of a final is timed

MORE: Final = 4
"""How many times as often, where it is not clear whether one is faster than the first."""


job_read: Final = lru_cache(maxsize=FORMS)(MeasureJob.from_json)
"""The job of a text, which those of a form share whose schedules are replayed already."""


def build(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """The objects of a candidate."""
    start = perf_counter()
    try:
        lowered = encode.from_json(asked.blobs[0].decode()) if asked.blobs else None
        assert lowered is None or isinstance(lowered, Kernel)  # ours, as we wrote it
        made = built(job_read(asked.head["job"]), lowered)
    except PlicaError as error:
        return _failure("refused", "build", error.diagnostics[0].message, start)
    except CRASHES as error:  # a bug of ours, or LLVM refuses the code: one trial
        return _failure("build", "build", f"{type(error).__name__}: {error}", start)
    except MemoryError:
        return _failure("build", "build", "There is not enough memory.", start)
    return MessageFrame({"stages": made.stages}, made.objects)


def run(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """Whether a candidate is right, and how long it takes."""
    start = perf_counter()
    job = job_read(asked.head["job"])
    try:
        expected = reference_of(job).expected
        code = Loaded(asked.blobs, limits.threads)
    except PlicaError as error:  # the work itself has no value, or no code of it is loaded
        return _failure("refused", "reference", error.diagnostics[0].message, start)
    try:
        if wrong := difference(job, code):
            return _failure("wrong", "validate", wrong, start)
        validated = perf_counter()
        with stopped(asked.head["others"]), placed(limits.threads):
            timing, result = _timing(job, code, limits, asked.head["bar"] or math.inf)
            times = timing.repeats()
        wrong = disagreement(result, expected)
        if wrong:  # threads may meet only now and then
            return _failure("wrong", "time", wrong, start)
    except EvaluationError as error:  # the reference had no such complaint
        return _failure("wrong", "validate", error.diagnostics[0].message, start)
    except CompilerBug as error:
        return _failure("wrong", "validate", str(error), start)
    except MemoryError:
        return _failure("crash", "validate", "There is not enough memory.", start)
    stages = {"validate": validated - start, "time": perf_counter() - validated}
    return MessageFrame({"outcome": ok(times, stages).to_json()})


def final(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """How long several candidates take, each of which was right before."""
    start = perf_counter()
    blobs = list(asked.blobs)
    timings = []
    kept = []
    for text, count in zip(asked.head["jobs"], asked.head["counts"], strict=True):
        code = Loaded([blobs.pop(0) for _ in range(count)], limits.threads)
        timing, result = _timing(job_read(text), code, limits)
        timings.append(timing)
        kept.append((code, result))  # while they are timed nobody may let go of them
    rounds: list[tuple[float, ...]] = []
    with stopped(asked.head["others"]), placed(limits.threads):
        for _ in range(MORE):
            rounds += interleaved(timings, asked.head["rounds"] or ROUNDS)
            if is_decided(rounds):
                break
    stages = {"time": (perf_counter() - start) / max(1, len(timings))}
    outcomes = [ok(tuple([each[at] for each in rounds]), stages) for at in range(len(timings))]
    return MessageFrame({"outcomes": [each.to_json() for each in outcomes]})


def _timing(
    job: MeasureJob, code: Loaded, limits: TrialLimits, bar: float = math.inf
) -> tuple[KernelTiming, Array]:
    """A candidate ready to be timed, and where its result will be."""
    reference = reference_of(job)
    written(reference, job.kernel)
    arrays = _together(job.kernel, read_by(job))
    table = table_of(arrays)
    flush = None
    if limits.flush:
        flush = flusher(target_of(job).cache(3))

    def repeat(count: int) -> None:
        code.run_table(table, count)

    return KernelTiming(repeat, clock_for(limits.threads), limits, flush, bar), arrays[-1]


def _together(kernel: Kernel, inputs: tuple[Array, ...]) -> list[Array]:
    """The parameters of a kernel one after the other in memory, as a plan puts them.

    At the starts of pages all of them would meet in the same lines of a cache.
    """
    shapes = [(shape_of(each), each.dtype.numpy) for each in kernel.params]
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


def _failure(status: Status, stage: str, message: str, start: float) -> MessageFrame:
    outcome: Outcome = failed(status, stage, message, {stage: perf_counter() - start})
    return MessageFrame({"outcome": outcome.to_json()})


Answer: TypeAlias = Callable[[MessageFrame, TrialLimits], MessageFrame]

WORK: Final[Mapping[str, Answer]] = {"build": build, "run": run, "final": final}


def serve(
    given: IO[bytes],
    answers: IO[bytes],
    limits: TrialLimits,
    work: Mapping[str, Answer] | None = None,
) -> None:
    """Answer frames until there are no more."""
    known = WORK if work is None else work
    while (asked := frame.read(given)) is not None:
        own = asked.head["of_processor"]
        _end_after(asked.head["seconds"], own)
        answer = known[asked.head["do"]](asked, limits)
        _end_after(0.0, own)
        answers.write(frame.to_bytes(answer))
        answers.flush()


def _end_after(seconds: float, of_processor: bool) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF if of_processor else signal.ITIMER_REAL, seconds)


def main(work: Mapping[str, Answer] | None = None) -> None:
    """Limit this process, then serve."""
    limits = TrialLimits.from_json(sys.argv[1])
    # Whatever a library prints must not come between the answers.
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
        serve(sys.stdin.buffer, answers, limits, work)
