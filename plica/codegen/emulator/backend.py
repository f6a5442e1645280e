"""The backend of emulated GPUs: the pipeline of NVIDIA's, whose text a processor runs.

>>> parse("cuda-emulator").describe(), str(parse("cuda-emulator:sm_80"))
('cuda-emulator:sm_90', 'cuda-emulator:sm_80')
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import evolve, frozen

from plica.codegen.compilation import Job, Lowered
from plica.codegen.cuda.assemble import assembled
from plica.codegen.cuda.backend import CUDA
from plica.codegen.cuda.passes import GPU
from plica.codegen.cuda.target import GpuTarget, parse_gpu
from plica.codegen.target import SpelledTarget, unknown_target
from plica.ir.passes import Pass
from plica.runtime.artefact import EMULATED, Artefact
from plica.runtime.emulator.gpu import compiler, missing
from plica.schedule.default.gpu import Gpu

NAME: Final = "cuda-emulator"


@frozen
class EmulatedTarget(SpelledTarget):
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

    def __str__(self) -> str:
        return f"{NAME}:{self.architecture}"


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


BACKEND: Final = evolve(
    CUDA,
    name=NAME,
    about="NVIDIA's GPUs on a processor, to try out what is written for them: cuda-emulator",
    parse=parse,
    pipelines={"default": PIPELINE, "fast": PIPELINE, "max": PIPELINE},
    check_here=lambda target: None,
    facts=lambda: compiler() or "",
    missing=missing,
    tuning="",
)
