"""Emulated entry: one program for another kind of machine, called from this process."""

from __future__ import annotations

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Program, Space
from plica.codegen.target import Target
from plica.core import CompilerBug
from plica.runtime.artefact import Artefact, ArtefactMachine, CompilationRecord
from plica.runtime.cross import check_cross, emulated_model
from plica.runtime.interface import Interface
from plica.runtime.port import Array, Port


def cross_entry(
    program: Program, plan: WorkspacePlan, fused: bool, target: Target
) -> tuple[int, object]:
    """Code of a program by LLVM for another kind of processor, run by QEMU."""
    check_cross(target.triple)
    code = toolchain.emit(fold(program, plan, target, fused), target)
    machine = ArtefactMachine(target.triple, target.cpu, target.features)
    return emulated_model(program_artefact(program, plan, machine, objects=(code,))).entry()


def program_artefact(
    program: Program,
    plan: WorkspacePlan,
    machine: ArtefactMachine,
    *,
    objects: tuple[bytes, ...] = (),
    constants: tuple[Array, ...] = (),
    text: str = "",
) -> Artefact:
    """The emulator's input for a program that is no model."""

    def ports(space: Space) -> tuple[Port, ...]:
        return tuple([
            Port(f"{space}{at}", slot.fixed, slot.dtype.name, slot.dtype.numpy)
            for at, slot in enumerate(program.space(space))
        ])  # fmt: skip

    interface = Interface((), ports("input"), ports("output"), single=False)
    return Artefact(
        interface, machine, 1, objects, constants, plan.size, (), (), (), (), _no_record, text=text
    )


def _no_record() -> CompilationRecord:
    raise CompilerBug("A single kernel has no record.")
