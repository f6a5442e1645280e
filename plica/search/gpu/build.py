"""Building for a GPU: one candidate becomes a cubin and its launches, as bytes.

It needs the compiler of CUDA C++ and no GPU, so candidates are built while others are timed.

    objects = (cubin, launches)          the launches are JSON: function, grid, block, shared, maps
"""

from __future__ import annotations

import json
from typing import Final

from plica.codegen.cuda.fold import KernelCode, KernelLaunch, fold
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import compiled
from plica.core import CompilerBug
from plica.ir.loop.statement import Kernel
from plica.runtime.cuda.tile import tile_data, tile_from
from plica.search.measure.build import Built, built_in_stages
from plica.search.measure.job import MeasureJob

NAME: Final = "candidate"

MAX_ARGUMENTS: Final = 1024


def gpu_target_of(job: MeasureJob) -> GpuTarget:
    """The GPU a job is for."""
    if (found := parse_gpu(job.target)) is None:
        raise CompilerBug(f"The job is for {job.target}, which is no GPU.")
    return found


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
    launches = [
        [e.function, e.grid, e.block, e.shared, [tile_data(each) for each in e.maps]]
        for e in code.launches
    ]
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
            tuple([tile_from(each, MAX_ARGUMENTS) for each in maps]),
        )
        for function, grid, block, shared, maps in data["launches"]
    ]
    return tuple(launches), tuple(data["scratch"])
