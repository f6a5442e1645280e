"""The backend of OpenCL: one text in OpenCL C, which the driver of a device compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from plica.codegen.backend import Backend, Texts
from plica.codegen.device_program import DeviceUnit, device_artefact, sized, unit
from plica.codegen.lower.page import GROUP, PLAN, SCATTER, SCHEDULE, WIDE, WINOGRAD
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.native import called_back, program_of
from plica.codegen.opencl.dialect import OPENCL
from plica.codegen.opencl.kernel import joined, kernel_code
from plica.codegen.opencl.target import SPELLINGS, OpenclTarget, parse
from plica.codegen.program import Program
from plica.codegen.record import kernels
from plica.codegen.road import Job, Lowered, emitted
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.artefact import OPENCL_TRIPLE, Artefact, ArtefactMachine
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.opencl.device import missing
from plica.runtime.opencl.executable import OpenclProgram
from plica.schedule.default import Machine


def unit_of(program: Program, plan: WorkspacePlan, fused: bool) -> DeviceUnit:
    """The text of a program, and what it launches."""
    return unit(program, plan, partial(kernel_code, fused=fused), joined)


def emit_opencl(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded onto a device, here or elsewhere."""
    made = unit_of(lowered.program, sized(lowered, "OpenCL"), lowered.fused)
    needs = ("+fp64",) if "double" in made.text else ()
    machine = ArtefactMachine(OPENCL_TRIPLE, str(job.target.vector), needs)
    artefact: Artefact = device_artefact(lowered, job, made, machine)
    return artefact


PAGE: Final = Pipeline((
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    *WIDE,              # widen, fold-widened: f32 is what every device multiplies
    *WINOGRAD,          # winograd, fold-winograd: where it pays
    SCATTER,            # values are put at places one by one
    *GROUP,             # infer, resolve, decompose, fuse: operators become primitive functions
    SCHEDULE,           # primitive functions become kernels, in order
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    PLAN,               # values have their place in the arena
    Pass("emit-opencl", "Kernels become OpenCL C.", emit_opencl, kind="emit"),
))  # fmt: skip


def build(page: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """Code of a lowered module, loaded onto a device."""
    return executable(emitted(page, lowered, job), texts=texts_of(lambda: lowered, job))


def texts_of(lowered: Callable[[], Lowered], job: Job, artefact: object = None) -> Texts:
    """The code at each stage, made when somebody asks for it."""

    def text() -> str:
        of = lowered()
        return unit_of(of.program, sized(of, "OpenCL"), of.fused).text

    return {"kernel": lambda: kernels(lowered().program), "opencl": text}


def _kernel_text(kernel: Kernel, target: OpenclTarget) -> str:
    program = program_of(kernel)
    return unit_of(program, workspace_plan(program), fused=False).text


def _machine(target: OpenclTarget) -> Machine:
    return machine_of(target.machine)


def entry(program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, Any]:
    """Code of a program on a device, as a function of this process."""
    made = unit_of(program, plan, fused)
    sizes = [slot.bytes for slot in (*program.space("input"), *program.space("output"))]
    run = OpenclProgram(made.text, made.program, (), sizes)
    return called_back(run.call, len(sizes))


BACKEND: Final = Backend(
    "opencl",
    "Devices of OpenCL, by OpenCL C: opencl, or for vectors of some bits, opencl:256.",
    parse,
    {"default": PAGE, "fast": PAGE.without("winograd", "fold-winograd"), "max": PAGE},
    build,
    texts_of,
    machine=_machine,
    dialect=OPENCL,
    encode=_kernel_text,
    missing=missing,
    threaded=False,
    library="Libraries for C are made for processors.",
    entry=entry,
    spellings=SPELLINGS,
)
