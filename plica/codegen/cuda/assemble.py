"""Assembling for GPUs: the last pass of their pipeline, from a plan to an artefact of cubins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from plica.codegen.compilation import Job, Lowered, record
from plica.codegen.cuda.branch import branches
from plica.codegen.cuda.fold import KernelCode, joined
from plica.codegen.cuda.open_unit import open_unit
from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.cuda.unit import TextInParts, cubins, unit
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.memory_plan import WorkspacePlan
from plica.runtime.artefact import TRIPLE, Artefact, ArtefactMachine
from plica.runtime.cuda.step import DeviceProgram, arranged


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
    if not isinstance(plan, WorkspacePlan):
        opened = open_unit(program, plan, target.gpu, whole, folder)
        return Artefact(
            interface(lowered.module.main_function(), program),
            ArtefactMachine(triple, target.architecture, ()),
            1,
            code(opened),
            tuple([aligned_bytes(constant) for constant in program.constants]),
            0,
            opened.sources,
            opened.launched,
            (),
            (*versions, *job.versions),
            partial(record, lowered),
            opened.program,
            opened.text,
        )
    made = unit(program, target.gpu, whole, job.workers, folder)
    sizes = [slot.bytes for slot in program.slots]
    layout = arranged(
        sizes, [slot.space for slot in program.slots], plan.where, plan.size, made.scratch
    )
    return Artefact(
        interface(lowered.module.main_function(), program),
        ArtefactMachine(triple, target.architecture, ()),
        1,
        code(made),
        tuple([aligned_bytes(constant) for constant in program.constants]),
        plan.size,
        (),
        made.launched,
        tenants(plan),
        (*versions, *job.versions),
        partial(record, lowered),
        DeviceProgram(made.steps, layout, branches(made, sizes, layout)),
        made.text,
    )
