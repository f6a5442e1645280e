"""Assembling WebAssembly: the last pass of its pipeline, from a plan to an artefact of one
module."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from plica.codegen.compilation import Job, Lowered, record
from plica.codegen.interface import aligned_bytes, interface, tenants
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.toolchain import llvm_version
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.operation_count import operations
from plica.codegen.program import kernel_name, launches, moved_bytes
from plica.codegen.wasm import toolchain
from plica.codegen.wasm.target import WasmTarget
from plica.runtime.artefact import Artefact, ArtefactMachine, Launched
from plica.runtime.error import Diagnostic, UnsupportedError


def text_of(lowered: Lowered, target: WasmTarget) -> str:
    """The LLVM text of a lowered module."""
    if not isinstance(lowered.plan, WorkspacePlan):
        message = "WebAssembly is made for sizes that are known; those of this model are open."
        hint = "Give the model its sizes, or compile it for 'cpu'."
        named = ", ".join(str(each.name) for each in lowered.program.dims)
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
            tuple([aligned_bytes(each) for each in program.constants]),
            plan.size,
            tuple([each.source for each in done]),
            tuple(
                [
                    Launched(
                        kernel_name(each.kernel, program),
                        operations(program.kernels[each.kernel]),
                        moved_bytes(each, program),
                    )
                    for each in done
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
