"""The worker for GPUs: a process that builds candidates, or runs them, and may die of it.

Building for a GPU: one candidate becomes a cubin and its launches, as bytes.

It needs the compiler of CUDA C++ and no GPU, so candidates are built while others are timed.

    objects = (cubin, launches)          the launches are JSON: function, grid, block, shared, maps

GPU references: results of the host processor on small integers.

Little work is done by its plain nest.  What would take that long is done by the kernel that rules
of thumb make for the processor, on all of its cores: other code, and the same exact sums.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve

from plica.codegen.cuda.fold import KernelCode, KernelLaunch, fold
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import compiled
from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import machine_of
from plica.codegen.native import shape_of
from plica.codegen.operation_count import operations
from plica.core import CompilerBug
from plica.ir.contract import reassociates
from plica.ir.loop.stages import from_kernel
from plica.ir.loop.statement import Kernel
from plica.runtime.cuda.driver import CudaGraph, CudaMemory, DeviceError, device
from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import PlicaError
from plica.runtime.host import cores
from plica.runtime.typed_json import plain, read
from plica.schedule.default import Machine, default_trace, formed
from plica.schedule.form import Facts
from plica.schedule.trace import Trace
from plica.search.measure import worker
from plica.search.measure.build import Built, Loaded, built, built_in_stages
from plica.search.measure.job import MeasureJob
from plica.search.measure.outcome import Status, TrialLimits
from plica.search.measure.reference import (
    POISON,
    Reference,
    disagreement,
    drawn_reference,
    plain_nest,
    prepared,
    written,
)
from plica.search.measure.timing import KernelTiming
from plica.search.sketch_rule import hoisted_kernel

MUCH: Final = 1 << 30  # operations that a plain nest takes too long for

_kept: dict[str, Reference] = {}


def gpu_reference_of(job: MeasureJob) -> Reference:
    """The reference of a job's work; the latest one is cached."""
    if job.about not in _kept:
        _kept.clear()
        _kept[job.about] = _reference(job)
    return _kept[job.about]


def _reference(job: MeasureJob) -> Reference:
    host = evolve(toolchain.host(), cores=cores())
    beside = _on_processor(job, host.describe(), machine_of(host))
    code = Loaded(built(beside).objects, host.cores)
    return drawn_reference(job.work, code, beside.kernel, lambda inputs: prepared(inputs, beside))


def _on_processor(job: MeasureJob, target: str, machine: Machine) -> MeasureJob:
    """The same work as a job for the processor, with its default schedule if the work is large."""
    whole = plain_nest(job.work)
    plain = evolve(job, form=from_kernel(whole), trace=Trace(()), target=target)
    if operations(whole) < MUCH or not job.reassociates:
        return plain
    if (found := formed(job.work, Facts(job.constant, contract=reassociates), machine)) is None:
        return plain
    trace = default_trace(hoisted_kernel(found.stages, job.constant).kernel, machine)
    return plain if trace is None else evolve(plain, form=found.stages, trace=trace)


NAME: Final = "candidate"


def gpu_target_of(job: MeasureJob) -> GpuTarget:
    """The GPU a job is for."""
    if (gpu_target := parse_gpu(job.target)) is None:
        raise CompilerBug(f"The job is for {job.target}, which is no GPU.")
    return gpu_target


def gpu_built(job: MeasureJob, known: Kernel | None = None) -> Built:
    """The code of a candidate; raises a `PlicaError` where its schedule or its code is refused."""
    target = gpu_target_of(job)

    def objects(kernel: Kernel) -> tuple[bytes, bytes]:
        code = fold(kernel, NAME)
        check(code.launches, target.gpu, NAME)
        return objects_of(code, target, fused=job.reassociates)

    return built_in_stages(job, known, "gpu", objects)


def objects_of(code: KernelCode, target: GpuTarget, *, fused: bool) -> tuple[bytes, bytes]:
    """The cubin of some functions, and how they are launched."""
    launches = [[e.function, e.grid, e.block, e.shared, plain(e.maps)] for e in code.launches]
    told = json.dumps({"launches": launches, "scratch": code.scratch})
    return compiled(code.text, target.architecture, fused=fused).code, told.encode()


def launches_of(told: bytes) -> tuple[tuple[KernelLaunch, ...], tuple[int, ...]]:
    """The launches, and the bytes of each scratch buffer."""
    data = json.loads(told)
    launches = [
        KernelLaunch(
            function,
            (grid[0], grid[1], grid[2]),
            (block[0], block[1], block[2]),
            shared,
            tuple([read(TileMap, each) for each in maps]),
        )
        for function, grid, block, shared, maps in data["launches"]
    ]
    return tuple(launches), tuple(data["scratch"])


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
        sizes = [math.prod(shape_of(buffer)) * buffer.dtype.bytes for buffer in buffers]
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
        self._addresses = [cuda_memory.address for cuda_memory in (*self._read, *self._written)]
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
        for function, launch in self._launches:
            given, shared = self._addresses, launch.shared
            self._stream.launch(function, launch.grid, launch.block, shared, given, launch.maps)


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
