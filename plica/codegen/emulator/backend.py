"""The backend of emulated GPUs: the pipeline of NVIDIA's, whose text a processor runs.

>>> parse("cuda-emulator").describe(), str(parse("cuda-emulator:sm_80"))
('cuda-emulator:sm_90', 'cuda-emulator:sm_80')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from attrs import evolve, frozen

from plica.codegen.backend import Texts
from plica.codegen.compilation import Job, Lowered, emitted
from plica.codegen.cuda.assemble import assembled
from plica.codegen.cuda.backend import CUDA
from plica.codegen.cuda.passes import GPU
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.record import kernels
from plica.codegen.target import unknown_target
from plica.ir.passes import Pass, Pipeline
from plica.runtime.artefact import EMULATED, Artefact
from plica.runtime.emulator.gpu import compiler, missing
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.schedule.default.gpu import Gpu

NAME: Final = "cuda-emulator"


@frozen
class EmulatedTarget:
    """A GPU that is not there."""

    like: GpuTarget

    backend: ClassVar[str] = NAME

    @property
    def gpu(self) -> Gpu:
        """The parameters of schedules."""
        return self.like.gpu

    @property
    def architecture(self) -> str:
        return self.like.architecture

    def describe(self) -> str:
        """A line that `parse` reads."""
        return f"{NAME}:{self.architecture}"

    def __str__(self) -> str:
        return self.describe()


def parse(text: str) -> EmulatedTarget:
    """The GPU that a text means."""
    kind, colon, architecture = text.strip().partition(":")
    if kind != NAME or (gpu_target := parse_gpu(f"cuda{colon}{architecture}")) is None:
        raise unknown_target(text)
    return EmulatedTarget(gpu_target)


def emit_text(lowered: Lowered, job: Job) -> Artefact:
    """All that will be run; the text is code enough."""
    return assembled(lowered, job, EMULATED, lambda made: (made.text.encode(),))


PIPELINE: Final = GPU.replace(
    "emit-cuda", Pass("emit-cuda-text", "Kernels become CUDA C++.", emit_text, kind="emit")
)


def build(pipeline: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """A model that the processor of this machine runs as a GPU would."""
    artefact = emitted(pipeline, lowered, job)
    return executable(artefact, texts=texts_of(lambda: lowered, job, artefact))


def texts_of(lowered: Callable[[], Lowered], job: Job, artefact: Artefact) -> Texts:
    """The code at each stage."""
    return {"kernel": lambda: kernels(lowered().program), "cuda": lambda: artefact.text}


def _gpu(target: EmulatedTarget) -> Gpu:
    return target.gpu


BACKEND: Final = evolve(
    CUDA,
    name=NAME,
    about="NVIDIA's GPUs on a processor, to try out what is written for them: cuda-emulator",
    parse=parse,
    pipelines={"default": PIPELINE, "fast": PIPELINE, "max": PIPELINE},
    build=build,
    texts=texts_of,
    machine=_gpu,
    check_here=lambda target: None,
    facts=lambda: compiler() or "",
    missing=missing,
    tuning="",
)
