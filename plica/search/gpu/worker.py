"""The worker for GPUs: a process that builds candidates, or runs them, and may die of it.

It answers what `plica.search.measure.worker` answers.  A candidate is run once into poisoned memory
and compared, then timed by events on the GPU, then compared again.  A fault ends the process: the
context is lost, and the next candidate begins with a new one.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Final, NoReturn

import numpy as np

from plica.codegen.native import shape_of
from plica.core.diagnostic import CompilerBug
from plica.rewrite.fuzz.judge import CRASHES
from plica.runtime.cuda.driver import CudaDevice, CudaGraph, CudaMemory, DeviceError, device
from plica.runtime.error import PlicaError
from plica.runtime.port import Array
from plica.search.gpu.build import gpu_built, launches_of
from plica.search.gpu.reference import gpu_reference_of
from plica.search.measure import worker
from plica.search.measure.frame import MessageFrame
from plica.search.measure.job import MeasureJob
from plica.search.measure.outcome import Status, TrialLimits, failed, ok
from plica.search.measure.reference import POISON, disagreement, prepared, written
from plica.search.measure.timing import KernelTiming, interleaved

TOGETHER: Final = 8
"""Runs that are one graph, at most: what the processor adds to each is small then."""

SHORT: Final = 1e-3  # seconds that a graph takes, about
EDGE: Final = 256  # bytes behind every array that nobody may write


class LoadedCandidate:
    """Code on the GPU with its memory, all of it poisoned but the inputs."""

    def __init__(self, gpu: CudaDevice, objects: Sequence[bytes], job: MeasureJob) -> None:
        reference = gpu_reference_of(job)
        cubin, told = objects
        launches, scratch = launches_of(told)
        self._stream = gpu.stream()
        self._module = gpu.load(cubin)
        self._launches = [(self._module.function(e.function, e.shared), e) for e in launches]
        inputs = prepared(reference.inputs, job)
        buffers = written(reference, job.kernel)
        sizes = [math.prod(shape_of(each)) * each.dtype.bytes for each in buffers]
        self._written: list[CudaMemory] = []
        self._sizes = [*sizes, *scratch]
        for size in self._sizes:
            room = gpu.reserve(size + EDGE)
            self._stream.fill(room.address, POISON, size + EDGE)
            self._written.append(room)
        self._read: list[CudaMemory] = []
        for array in inputs:
            dense = np.ascontiguousarray(array)
            room = gpu.reserve(dense.nbytes)
            self._stream.to_device(room.address, dense.ctypes.data, dense.nbytes)
            self._stream.wait()
            self._read.append(room)
        self._shape, self._kind = shape_of(buffers[-1]), buffers[-1].dtype.numpy
        self._result = self._written[len(sizes) - 1]
        self._addresses = [each.address for each in (*self._read, *self._written)]
        self._graph: CudaGraph | None = None
        self._nanoseconds, self._together = 0.0, 1

    def once(self) -> None:
        """Run it, and wait."""
        self._put()
        self._stream.wait()

    def result(self) -> Array:
        """What it wrote."""
        found = np.empty(self._shape, self._kind)
        self._stream.to_host(found.ctypes.data, self._result.address, found.nbytes)
        self._stream.wait()
        return found

    def spoiled(self) -> str:
        """What it wrote that is not its own, or nothing."""
        edge = np.empty(EDGE, np.uint8)
        for number, (room, size) in enumerate(zip(self._written, self._sizes, strict=True)):
            self._stream.to_host(edge.ctypes.data, room.address + size, EDGE)
            self._stream.wait()
            if (edge != POISON).any():
                return f"It writes beside its buffer {number}."
        return ""

    def timing(self, limits: TrialLimits, bar: float = math.inf) -> KernelTiming:
        """Ready to be timed; the clock is that of the GPU."""
        first = self._stream.mark()
        self._put()
        seconds = self._stream.mark().since(first)
        self._together = max(1, min(TOGETHER, int(SHORT / max(seconds, 1e-9))))
        self._graph = self._stream.noted(self._put_some)
        return KernelTiming(self._repeat, lambda: int(self._nanoseconds), limits, None, bar)

    def _repeat(self, count: int) -> None:
        assert self._graph is not None
        first = self._stream.mark()
        for _ in range(count):
            self._graph.run(self._stream.handle)
        last = self._stream.mark()
        self._nanoseconds += last.since(first) * 1e9 / self._together

    def _put_some(self) -> None:
        for _ in range(self._together):
            self._put()

    def _put(self) -> None:
        for function, each in self._launches:
            given, shared = self._addresses, each.shared
            self._stream.launch(function, each.grid, each.block, shared, given, each.maps)


def build(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """The code of a candidate."""
    start = perf_counter()
    try:
        made = gpu_built(MeasureJob.from_json(asked.head["job"]))
    except PlicaError as error:
        status: Status = "build" if error.code == "cuda-compile" else "refused"
        return _failure(status, "build", error.diagnostics[0].message, start)
    except CRASHES as error:  # a bug of ours: one trial
        return _failure("build", "build", f"{type(error).__name__}: {error}", start)
    return MessageFrame({"stages": made.stages}, made.objects)


def run(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """Whether a candidate is right, and how long it takes."""
    start = perf_counter()
    job = MeasureJob.from_json(asked.head["job"])
    try:
        expected = gpu_reference_of(job).expected
    except PlicaError as error:  # the work itself has no value
        return _failure("refused", "reference", error.diagnostics[0].message, start)
    try:
        candidate = LoadedCandidate(device(), asked.blobs, job)
        candidate.once()
        wrong = candidate.spoiled() or disagreement(candidate.result(), expected)
        if wrong:
            return _failure("wrong", "validate", wrong, start)
        validated = perf_counter()
        bar = asked.head["bar"]
        times = candidate.timing(limits, math.inf if bar is None else bar).repeats()
        wrong = candidate.spoiled() or disagreement(candidate.result(), expected)
        if wrong:  # threads may meet only now and then
            return _failure("wrong", "time", wrong, start)
    except DeviceError as error:
        if error.code == "device-fault":
            _end(error)
        status: Status = "crash" if error.code == "device-memory" else "refused"
        return _failure(status, "validate", _said(error), start)
    except CompilerBug as error:
        return _failure("wrong", "validate", str(error), start)
    stages = {"validate": validated - start, "time": perf_counter() - validated}
    return MessageFrame({"outcome": ok(times, stages).to_json()})


def final(asked: MessageFrame, limits: TrialLimits) -> MessageFrame:
    """How long several candidates take, each of which was right before."""
    start = perf_counter()
    blobs = list(asked.blobs)
    candidates = []
    try:
        for text, count in zip(asked.head["jobs"], asked.head["counts"], strict=True):
            objects = [blobs.pop(0) for _ in range(count)]
            candidates.append(LoadedCandidate(device(), objects, MeasureJob.from_json(text)))
        timings = [each.timing(limits) for each in candidates]
        rounds = tuple(interleaved(timings, asked.head["rounds"] or worker.ROUNDS))
    except DeviceError as error:
        _end(error)
    stages = {"time": (perf_counter() - start) / max(1, len(timings))}
    outcomes = [ok(tuple([each[at] for each in rounds]), stages) for at in range(len(timings))]
    return MessageFrame({"outcomes": [each.to_json() for each in outcomes]})


def _end(error: DeviceError) -> NoReturn:
    """End the process, whose GPU is lost; whoever asked reads why."""
    print(_said(error), file=sys.stderr, flush=True)
    os._exit(3)


def _said(error: DeviceError) -> str:
    first = error.diagnostics[0]
    return f"{first.message} {first.found or ''}".strip()


def _failure(status: Status, stage: str, message: str, start: float) -> MessageFrame:
    outcome = failed(status, stage, message, {stage: perf_counter() - start})
    return MessageFrame({"outcome": outcome.to_json()})


WORK: Final[Mapping[str, worker.Answer]] = {"build": build, "run": run, "final": final}


def main() -> None:
    """Serve; memory is not limited, since a driver reserves addresses without measure."""
    worker.main(WORK)
