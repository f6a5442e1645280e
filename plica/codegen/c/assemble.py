"""Assembling C: the last pass of its pipeline, from a plan to an artefact of one object."""

from __future__ import annotations

from functools import partial

from plica.codegen.c import toolchain
from plica.codegen.c.program import NarrowParams, fold
from plica.codegen.compilation import Job, Lowered, record
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import Launch, Program, kernel_name
from plica.runtime.artefact import Artefact, ArtefactMachine, Launched
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.link import link
from plica.runtime.port import Array


def text_of(lowered: Lowered, narrow: NarrowParams | None = None) -> str:
    """The C text of a lowered module, as `fold` makes it."""
    if not isinstance(lowered.plan, WorkspacePlan):
        message = "C is made for sizes that are known; those of this model are open."
        hint = "Give the model its sizes, or compile it for 'cpu'."
        named = ", ".join(str(dim.name) for dim in lowered.program.dims)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))
    return fold(lowered.program, lowered.plan, narrow)


def emit_c(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded, on this machine or one like it."""
    text = text_of(lowered)
    machine = ArtefactMachine(toolchain.triple(), "generic", ())
    versions = (("cc", toolchain.version()), *job.versions)
    return artefact_of(lowered, text, (toolchain.emit(text),), machine, versions=versions)


def artefact_of(
    lowered: Lowered,
    text: str,
    objects: tuple[bytes, ...],
    machine: ArtefactMachine,
    *,
    versions: tuple[tuple[str, str], ...],
    constants: tuple[Array, ...] | None = None,
) -> Artefact:
    """The artefact of a C program and its compiled form; `constants` if the text stores them
    differently."""
    program, plan = lowered.program, lowered.plan
    assert isinstance(plan, WorkspacePlan)  # or there were no text
    if constants is None:
        constants = tuple([aligned_bytes(constant) for constant in program.constants])
    launches = [step for steps in program.regions for step in steps if isinstance(step, Launch)]
    return Artefact(
        interface(lowered.module.main_function(), program),
        machine,
        1,
        objects,
        constants,
        plan.size,
        tuple([launch.source for launch in launches]),
        tuple([_launched(launch, program) for launch in launches]),
        tenants(plan),
        versions,
        partial(record, lowered),
        text=text,
    )


def _launched(of: Launch, program: Program) -> Launched:
    size = sum(program.slots[slot].bytes for slot in of.args)
    return Launched(kernel_name(of.kernel, program), operations(program.kernels[of.kernel]), size)


def entry(program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, object]:
    """Code of a program in this process; C never rounds a product and a sum at once."""
    code = link([toolchain.emit(fold(program, plan))])
    return code.address("plica_main"), code
