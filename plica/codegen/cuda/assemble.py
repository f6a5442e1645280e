"""Assembling for GPUs: the last pass of their page, from a plan to an artefact of cubins."""

from __future__ import annotations

from functools import partial

from plica.codegen.cuda.toolchain import version as nvrtc_version
from plica.codegen.cuda.unit import cubins, unit
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.road import Job, Lowered, record
from plica.runtime.artefact import TRIPLE, Artefact, ArtefactMachine
from plica.runtime.cuda.step import DeviceProgram, arranged


def emit_cuda(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded onto a GPU, here or elsewhere: none need be here."""
    program, plan, target = lowered.program, lowered.plan, job.target
    assert isinstance(plan, WorkspacePlan)  # sizes are known on a GPU
    made = unit(program, target.gpu)
    layout = arranged(
        [slot.bytes for slot in program.slots],
        [slot.space for slot in program.slots],
        plan.where,
        plan.size,
        made.scratch,
    )
    codes = cubins(made, target.architecture, fused=lowered.fused, store=job.store)
    return Artefact(
        interface(lowered.module.main_function(), program),
        ArtefactMachine(TRIPLE, target.architecture, ()),
        1,
        codes,
        tuple([aligned_bytes(each) for each in program.constants]),
        plan.size,
        (),
        made.launched,
        tenants(plan),
        (("nvrtc", ".".join(map(str, nvrtc_version() or ()))), *job.versions),
        partial(record, lowered),
        DeviceProgram(made.steps, layout),
        made.text,
    )
