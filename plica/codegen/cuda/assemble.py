"""Assembling for GPUs: the last pass of their pipeline, from a plan to an artefact of cubins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plica.codegen.code_artefact import artefact_of
from plica.codegen.compilation import Job, Lowered
from plica.codegen.cuda.branch import branches
from plica.codegen.cuda.fold import KernelCode, joined
from plica.codegen.cuda.open_unit import open_unit
from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.cuda.unit import TextInParts, cubins, unit
from plica.codegen.memory_plan import WorkspacePlan
from plica.runtime.artefact import TRIPLE, Artefact, ArtefactMachine
from plica.runtime.cuda.step import DeviceProgram


def emit_cuda(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded onto a GPU, here or elsewhere: none need be here."""

    def code(made: TextInParts) -> tuple[bytes, ...]:
        return cubins(
            made, job.target.architecture, fused=lowered.fused, store=job.store, workers=job.workers
        )

    version = ".".join(map(str, nvrtc_version() or ()))
    versions = (("nvrtc", version),)
    return assembled(lowered, job, TRIPLE, code, versions, folder=job.target.debug)


def assembled(
    lowered: Lowered,
    job: Job,
    triple: str,
    code: Callable[[TextInParts], tuple[bytes, ...]],
    versions: tuple[tuple[str, str], ...] = (),
    *,
    whole: Callable[[Sequence[KernelCode]], str] = joined,
    folder: str = "",
) -> Artefact:
    """The artefact of a plan, with the code that is made of its text; its lines are those of files
    in a `folder`."""
    program, plan, target = lowered.program, lowered.plan, job.target
    machine = ArtefactMachine(triple, target.architecture, ())
    if not isinstance(plan, WorkspacePlan):
        opened = open_unit(program, plan, target.gpu, whole, folder)
        return artefact_of(
            lowered, job, machine, code(opened), versions=versions, sources=opened.sources,
            launched=opened.launched, device=opened.program, text=opened.text,
        )  # fmt: skip
    made = unit(program, target.gpu, whole, job.workers, folder)
    sizes = [slot.bytes for slot in program.slots]
    layout = made.layout(program, plan)
    device = DeviceProgram(made.steps, layout, branches(made, sizes, layout))
    return artefact_of(
        lowered, job, machine, code(made), versions=versions, sources=(), launched=made.launched,
        device=device, text=made.text,
    )  # fmt: skip
