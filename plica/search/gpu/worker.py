"""The worker for GPUs: a process that builds candidates, or runs them, and may die of it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from plica.codegen.native import shape_of
from plica.runtime.cuda.driver import CudaGraph, CudaMemory, DeviceError, device
from plica.runtime.error import PlicaError
from plica.search.gpu.build import gpu_built, launches_of
from plica.search.gpu.reference import gpu_reference_of
from plica.search.measure import worker
from plica.search.measure.job import MeasureJob
from plica.search.measure.outcome import Status, TrialLimits
from plica.search.measure.reference import POISON, disagreement, prepared, written
from plica.search.measure.timing import KernelTiming

MAX_RUNS_PER_GRAPH: Final = 8  # runs of one graph at most, so that launch overhead is small
GRAPH_SECONDS: Final = 1e-3  # seconds that a graph takes, about
GUARD_BYTES: Final = 256  # bytes behind every array that nobody may write


class LoadedCandidate:
    """Code on the GPU with its memory, all of it poisoned but the inputs."""

    def __init__(self, objects: Sequence[bytes], job: MeasureJob, limits: TrialLimits) -> None:
        gpu, reference = device(), gpu_reference_of(job)
        self._expected = reference.expected
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
            room = gpu.reserve(size + GUARD_BYTES)
            self._stream.fill(room.address, POISON, size + GUARD_BYTES)
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

    def difference(self) -> str:
        """Runs it and waits; returns an error in its output, or an empty text."""
        self._put()
        self._stream.wait()
        return self.late_difference()

    def late_difference(self) -> str:
        """The error in its output, or an empty text."""
        written_array = np.empty(self._shape, self._kind)
        address = written_array.ctypes.data
        self._stream.to_host(address, self._result.address, written_array.nbytes)
        self._stream.wait()
        return self._spoiled() or disagreement(written_array, self._expected)

    def _spoiled(self) -> str:
        """What it wrote that is not its own, or nothing."""
        edge = np.empty(GUARD_BYTES, np.uint8)
        for number, (room, size) in enumerate(zip(self._written, self._sizes, strict=True)):
            self._stream.to_host(edge.ctypes.data, room.address + size, GUARD_BYTES)
            self._stream.wait()
            if (edge != POISON).any():
                return f"It writes beside its buffer {number}."
        return ""

    def timing(self, limits: TrialLimits, bar: float = math.inf) -> KernelTiming:
        """Ready to be timed; the clock is that of the GPU."""
        first = self._stream.mark()
        self._put()
        seconds = self._stream.mark().since(first)
        self._together = max(1, min(MAX_RUNS_PER_GRAPH, int(GRAPH_SECONDS / max(seconds, 1e-9))))
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


def _status_of(error: PlicaError) -> Status:
    """The status of a failed trial; a fault ends the process, because its GPU context is lost."""
    if error.code == "device-fault" or not isinstance(error, DeviceError):
        print(worker.sentence(error), file=sys.stderr, flush=True)
        os._exit(3)
    return "crash" if error.code == "device-memory" else "refused"


GPU: Final = worker.TrialMachine(
    gpu_built, gpu_reference_of, LoadedCandidate, _status_of, compiler_error="cuda-compile"
)


def main() -> None:
    """Serve; memory is not limited, since a driver reserves addresses without measure."""
    worker.main(worker.answers_of(GPU))
