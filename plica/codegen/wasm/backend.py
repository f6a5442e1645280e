"""The backend of WebAssembly: LLVM with lanes of 128 bits; wasmtime, Node and browsers run it.

Assembling WebAssembly: the last pass of its pipeline, from a plan to an artefact of one
module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Final

from attrs import frozen

from plica.codegen.backend import Backend, Texts
from plica.codegen.compilation import Job, Lowered, emitted, record
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.llvm import toolchain as llvm
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.passes import CPU
from plica.codegen.llvm.toolchain import llvm_version
from plica.codegen.lower.processor import machine_of
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.native import called_back, program_of
from plica.codegen.operation_count import operations
from plica.codegen.program import Program, kernel_name, launches, moved_bytes
from plica.codegen.record import kernels
from plica.codegen.wasm import toolchain
from plica.codegen.wasm.target import SPELLINGS, WasmTarget, parse
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.runtime.artefact import Artefact, ArtefactMachine, Launched
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.wasm.instance import INSTALL, WasmInstance
from plica.schedule.default import Machine


def text_of(lowered: Lowered, target: WasmTarget) -> str:
    """The LLVM text of a lowered module."""
    if not isinstance(lowered.plan, WorkspacePlan):
        message = "WebAssembly is made for sizes that are known; those of this model are open."
        hint = "Give the model its sizes, or compile it for 'cpu'."
        named = ", ".join(str(dim.name) for dim in lowered.program.dims)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))
    machine = target.machine
    return fold(lowered.program, lowered.plan, machine, lowered.fused, lowered.signless)


@frozen
class EmitWasm:
    """A module of all kernels, which LLVM improves so much: 2 as usual, 1 to be done soon."""

    level: int = 2

    def __call__(self, lowered: Lowered, job: Job) -> Artefact:
        """All that will be loaded, in a browser or here."""
        target: WasmTarget = job.target
        code = toolchain.emit(text_of(lowered, target), target.machine, self.level)
        program, plan, machine = lowered.program, lowered.plan, target.machine
        assert isinstance(plan, WorkspacePlan)  # or there were no text
        done = launches(program)
        return Artefact(
            interface(lowered.module.main_function(), program),
            ArtefactMachine(machine.triple, machine.cpu, machine.features, machine.machine),
            1,
            (code,),
            tuple([aligned_bytes(constant) for constant in program.constants]),
            plan.size,
            tuple([launch.source for launch in done]),
            tuple(
                [
                    Launched(
                        kernel_name(launch.kernel, program),
                        operations(program.kernels[launch.kernel]),
                        moved_bytes(launch, program),
                    )
                    for launch in done
                ]
            ),
            tenants(plan),
            (
                ("llvm", llvm_version()),
                ("wasm-ld", toolchain.version(toolchain.linker())),
                *job.versions,
            ),
            partial(record, lowered),
        )


def _pipeline(level: int) -> Pipeline:
    why = "Emit kernels and launches as one WebAssembly module."
    return CPU.replace("emit-llvm", Pass("emit-wasm", why, EmitWasm(level), kind="emit"))


PIPELINE: Final = _pipeline(2)
FAST: Final = _pipeline(1).without("winograd", "fold-winograd")


def build(pipeline: Pipeline, lowered: Lowered, job: Job) -> Executable:
    """Code of a lowered module, loaded into an engine of this process."""
    return executable(emitted(pipeline, lowered, job), texts=texts_of(lambda: lowered, job))


def texts_of(lowered: Callable[[], Lowered], job: Job, artefact: object = None) -> Texts:
    """The code at each stage, made when somebody asks for it."""

    def text() -> str:
        return text_of(lowered(), job.target)

    return {
        "kernel": lambda: kernels(lowered().program),
        "llvm": text,
        "asm": lambda: llvm.assembly_static(text(), job.target.machine),
    }


def _kernel_text(kernel: Kernel, target: WasmTarget) -> str:
    program = program_of(kernel)
    return fold(program, workspace_plan(program), target.machine)


def _machine(target: WasmTarget) -> Machine:
    return machine_of(target.machine)


def missing() -> str:
    """What is not here of what makes modules and of what runs them."""
    try:
        toolchain.linker()
    except UnsupportedError as error:
        return str(error)
    if find_spec("wasmtime") is None:
        return f"There is no engine for WebAssembly in this Python: {INSTALL}."
    return ""


def entry(
    target: WasmTarget, program: Program, plan: WorkspacePlan, fused: bool
) -> tuple[int, object]:
    """Code of a program in an engine of this process, as a function of this process."""
    machine = target.machine
    code = toolchain.emit(fold(program, plan, machine, fused), machine)
    sizes = [slot.bytes for slot in (*program.space("input"), *program.space("output"))]
    instance = WasmInstance(code, sizes, len(program.space("input")), (), plan.size)
    return called_back(instance.call, len(sizes))


BACKEND: Final = Backend(
    "wasm",
    "WebAssembly by LLVM, for browsers, Node and wasmtime: wasm, wasm:relaxed, wasm:scalar.",
    parse,
    {"default": PIPELINE, "fast": FAST, "max": PIPELINE},
    build,
    texts_of,
    machine=_machine,
    dialect=LLVM,
    encode=_kernel_text,
    check_tools=lambda target: toolchain.linker(),
    missing=missing,
    loads=True,
    facts=lambda: toolchain.version(toolchain.linker()),
    threaded=False,
    library="Libraries for C are made for processors.",
    entry=lambda target: partial(entry, target),
    spellings=SPELLINGS,
)
