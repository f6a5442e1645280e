"""The backend of NVIDIA's GPUs: CUDA C++ by NVRTC."""

from __future__ import annotations

from typing import Final

from plica.codegen.backend import Backend, CodeAhead
from plica.codegen.code_artefact import CodeTexts, text_of_artefact
from plica.codegen.cuda.dialect import CUDA as CUDA_DIALECT
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.passes import PIPELINES
from plica.codegen.cuda.scheduled import threads
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.cuda.toolchain import check_installed, version as nvrtc_version
from plica.codegen.cuda.unit import code_ahead, keep_ahead
from plica.codegen.lower.passes import LOWERING
from plica.codegen.target import unknown_target
from plica.runtime.cuda import code
from plica.runtime.cuda.driver import architecture_here, device
from plica.schedule.default.gpu.choose import THREADS


def parse(text: str) -> GpuTarget:
    """The GPU that a text means: the one that is here, or one that is named."""
    if (gpu_target := parse_gpu(text, architecture_here)) is None:
        raise unknown_target(text)
    return gpu_target


TEXTS: Final = CodeTexts({"cuda": text_of_artefact})


def _check_here(target: GpuTarget) -> None:
    code.check(target.architecture, device().architecture)


CUDA: Final = Backend(
    "cuda",
    "NVIDIA's GPUs, by NVRTC: cuda, or an architecture, cuda:sm_80",
    parse,
    PIPELINES,
    TEXTS.build,
    TEXTS.texts,
    machine=lambda target: target.gpu,
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
