"""The backend of NVIDIA's GPUs: CUDA C++ by NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.codegen.backend import Backend, CodeAhead, Texts
from plica.codegen.choices import table
from plica.codegen.compilation import Job, Lowered, emitted
from plica.codegen.cuda.dialect import CUDA as CUDA_DIALECT
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.passes import PIPELINES
from plica.codegen.cuda.scheduled import threads
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import check_installed, version as nvrtc_version
from plica.codegen.cuda.unit import code_ahead, keep_ahead
from plica.codegen.lower.passes import LOWERING
from plica.codegen.record import kernels
from plica.codegen.target import unknown_target
from plica.ir.passes import Pipeline
from plica.runtime.artefact import Artefact
from plica.runtime.cuda import code
from plica.runtime.cuda.driver import architecture_here, device
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.choose import THREADS


def parse(text: str) -> GpuTarget:
    """The GPU that a text means: the one that is here, or one that is named."""
    if (gpu_target := parse_gpu(text, architecture_here)) is None:
        raise unknown_target(text)
    return gpu_target


def build(pipeline: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """Code for a GPU, loaded onto the one of this machine."""
    artefact = emitted(pipeline, lowered, job)
    return executable(artefact, texts=texts_of(lambda: lowered, job, artefact))


def texts_of(lowered: Callable[[], Lowered], job: Job, artefact: Artefact) -> Texts:
    """The code at each stage."""
    found = {"kernel": lambda: kernels(lowered().program), "cuda": lambda: artefact.text}
    if job.chooser is not None:
        found["tuning"] = lambda: table(lowered().tuning)
    return found


def _gpu(target: GpuTarget) -> Gpu:
    return target.gpu


def _check_here(target: GpuTarget) -> None:
    code.check(target.architecture, device().architecture)


CUDA: Final = Backend(
    "cuda",
    "NVIDIA's GPUs, by NVRTC: cuda, or an architecture, cuda:sm_80",
    parse,
    PIPELINES,
    build,
    texts_of,
    machine=_gpu,
    tables=THREADS,
    schedules=threads,
    lowering=LOWERING["gpu"],
    dialect=CUDA_DIALECT,
    encode=lambda kernel, target: fold(kernel, "kernel").text,
    ahead=CodeAhead(code_ahead, keep_ahead),
    check_here=_check_here,
    check_tools=lambda target: check_installed(),
    facts=lambda: str(nvrtc_version()),
    opens=lambda target: True,
    chooses=False,
    threaded=False,
    library="Libraries for C are made for processors.",
    tuning="plica.search.gpu.target:CUDA",
)
