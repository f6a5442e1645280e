"""The backend of WebAssembly: LLVM with lanes of 128 bits; wasmtime, Node and browsers run it.

Assembling WebAssembly: the last pass of its pipeline, from a plan to an artefact of one
module.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Final

from attrs import frozen

from plica.codegen.backend import Backend
from plica.codegen.code_artefact import CodeTexts, Later, artefact_of, sized
from plica.codegen.compilation import Job, Lowered
from plica.codegen.llvm import toolchain as llvm
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.passes import CPU
from plica.codegen.llvm.toolchain import llvm_version
from plica.codegen.lower.processor import machine_of
from plica.codegen.memory_plan import WorkspacePlan, workspace_plan
from plica.codegen.native import called_back, program_of
from plica.codegen.program import Program
from plica.codegen.wasm import toolchain
from plica.codegen.wasm.target import SPELLINGS, WasmTarget, parse
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.error import UnsupportedError
from plica.runtime.wasm.instance import INSTALL, WasmInstance


def text_of(lowered: Lowered, target: WasmTarget) -> str:
    """The LLVM text of a lowered module."""
    plan = sized(lowered, "WebAssembly")
    return fold(lowered.program, plan, target.machine, lowered.fused, lowered.signless)


@frozen
class EmitWasm:
    """A module of all kernels, which LLVM improves so much: 2 as usual, 1 to be done soon."""

    level: int = 2

    def __call__(self, lowered: Lowered, job: Job) -> Artefact:
        """All that will be loaded, in a browser or here."""
        target: WasmTarget = job.target
        machine = target.machine
        code = toolchain.emit(text_of(lowered, target), machine, self.level)
        linker = toolchain.version(toolchain.linker())
        return artefact_of(
            lowered, job,
            ArtefactMachine(machine.triple, machine.cpu, machine.features, machine.machine),
            (code,), versions=(("llvm", llvm_version()), ("wasm-ld", linker)),
        )  # fmt: skip


def _pipeline(level: int) -> Pipeline:
    why = "Emit kernels and launches as one WebAssembly module."
    return CPU.replace("emit-llvm", Pass("emit-wasm", why, EmitWasm(level), kind="emit"))


PIPELINE: Final = _pipeline(2)
FAST: Final = _pipeline(1).without("winograd", "fold-winograd")


def _assembly(lowered: Later, job: Job, artefact: object) -> str:
    return llvm.assembly_static(text_of(lowered(), job.target), job.target.machine)


TEXTS: Final = CodeTexts({
    "llvm": lambda lowered, job, artefact: text_of(lowered(), job.target),
    "asm": _assembly,
})  # fmt: skip


def _kernel_text(kernel: Kernel, target: WasmTarget) -> str:
    program = program_of(kernel)
    return fold(program, workspace_plan(program), target.machine)


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
    TEXTS.build,
    TEXTS.texts,
    machine=lambda target: machine_of(target.machine),
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
