"""The backend of WebGPU: shaders in WGSL, which the driver of a GPU compiles.

>>> parse("webgpu").describe()
'webgpu'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from attrs import frozen

from plica.codegen.backend import Backend, Texts
from plica.codegen.device_program import DeviceUnit, device_artefact, sized, unit
from plica.codegen.lower.page import GROUP, PLAN, SCATTER, SCHEDULE, WIDE
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.native import called_back, program_of
from plica.codegen.program import Program
from plica.codegen.record import kernels
from plica.codegen.road import Job, Lowered, emitted
from plica.codegen.target import Target, unknown_target
from plica.codegen.webgpu.dialect import WGSL
from plica.codegen.webgpu.kernel import joined, kernel_code
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.artefact import WEBGPU_TRIPLE, Artefact, ArtefactMachine
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.webgpu.device import missing
from plica.runtime.webgpu.executable import WebgpuProgram
from plica.schedule.default import Machine

ITEMS: Final = 64
"""Work items that schedules share the work among, at least."""


@frozen
class WebgpuTarget:
    """A GPU that runs WGSL."""

    backend: ClassVar[str] = "webgpu"

    def describe(self) -> str:
        """A line that `parse` reads."""
        return "webgpu"

    def __str__(self) -> str:
        return "webgpu"


def parse(text: str) -> WebgpuTarget:
    """The target that a text means: there is nothing to say of it but its name."""
    if text.strip() != "webgpu":
        raise unknown_target(text, ("webgpu",))
    return WebgpuTarget()


def unit_of(program: Program, plan: WorkspacePlan) -> DeviceUnit:
    """The shaders of a program, and what it launches."""
    return unit(program, plan, kernel_code, joined)


def emit_webgpu(lowered: Lowered, job: Job) -> Artefact:
    """All that will be loaded onto a device, here or elsewhere."""
    made = unit_of(lowered.program, sized(lowered, "WebGPU"))
    machine = ArtefactMachine(WEBGPU_TRIPLE, "generic", needs(made.text))
    artefact: Artefact = device_artefact(lowered, job, made, machine)
    return artefact


def needs(text: str) -> tuple[str, ...]:
    """The extensions that a text asks for."""
    return ("+int64",) if "i64" in text or "u64" in text else ()


PAGE: Final = Pipeline((
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    *WIDE,              # widen, fold-widened: f32 is what every device multiplies
    SCATTER,            # values are put at places one by one
    *GROUP,             # infer, resolve, decompose, fuse: operators become primitive functions
    SCHEDULE,           # primitive functions become kernels, in order
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    PLAN,               # values have their place in the arena
    Pass("emit-webgpu", "Kernels become shaders in WGSL.", emit_webgpu, kind="emit"),
))  # fmt: skip


def build(page: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """Code of a lowered module, loaded onto a device."""
    return executable(emitted(page, lowered, job), texts=texts_of(lambda: lowered, job))


def texts_of(lowered: Callable[[], Lowered], job: Job, artefact: object = None) -> Texts:
    """The code at each stage, made when somebody asks for it."""

    def text() -> str:
        return unit_of(lowered().program, sized(lowered(), "WebGPU")).text

    return {"kernel": lambda: kernels(lowered().program), "wgsl": text}


def _kernel_text(kernel: Kernel, target: WebgpuTarget) -> str:
    program = program_of(kernel)
    return unit_of(program, workspace_plan(program)).text


def _machine(target: WebgpuTarget) -> Machine:
    """Many items with few registers each, and no vectors: an item is a lane."""
    described = Target("cpu", "generic", "generic", vector=128, registers=8, cores=ITEMS)
    return machine_of(described)


def entry(program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, Any]:
    """Code of a program on a device, as a function of this process."""
    made = unit_of(program, plan)
    sizes = [slot.bytes for slot in (*program.space("input"), *program.space("output"))]
    run = WebgpuProgram(made.text, made.program, (), sizes, needs(made.text))
    return called_back(run.call, len(sizes))


BACKEND: Final = Backend(
    "webgpu",
    "GPUs by WebGPU: shaders in WGSL.",
    parse,
    {"default": PAGE, "fast": PAGE, "max": PAGE},
    build,
    texts_of,
    machine=_machine,
    dialect=WGSL,
    encode=_kernel_text,
    missing=missing,
    threaded=False,
    library="Libraries for C are made for processors.",
    entry=entry,
)
