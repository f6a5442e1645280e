"""Assembling C: the last pass of its pipeline, from a plan to an artefact of one object."""

from __future__ import annotations

from plica.codegen.c import toolchain
from plica.codegen.c.program import NarrowParams, fold
from plica.codegen.code_artefact import artefact_of, sized
from plica.codegen.compilation import Job, Lowered
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Program
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.link import link


def text_of(lowered: Lowered, narrow: NarrowParams | None = None) -> str:
    """The C text of a lowered module, as `fold` makes it."""
    return fold(lowered.program, sized(lowered, "C"), narrow)


def emit_c(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded, on this machine or one like it."""
    text = text_of(lowered)
    machine = ArtefactMachine(toolchain.triple(), "generic", ())
    versions = (("cc", toolchain.version()),)
    objects = (toolchain.emit(text),)
    return artefact_of(lowered, job, machine, objects, versions=versions, text=text)


def entry(program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, object]:
    """Code of a program in this process; C never rounds a product and a sum at once."""
    code = link([toolchain.emit(fold(program, plan))])
    return code.address("plica_main"), code
