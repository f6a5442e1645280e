"""Building: from a module of the whole language to something one can call.

The graph is optimised as any other, made first order and cut into kernels and routines
(`plica.codegen.dynamic.prepare`), which become native code that is loaded into this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen

from plica.codegen.dynamic.count import counted
from plica.codegen.dynamic.face import face_of, hidden_functions, maker
from plica.codegen.dynamic.instruct import instruct
from plica.codegen.dynamic.prepare import PASSES, kernels_of
from plica.codegen.dynamic.program import Program
from plica.codegen.dynamic.show import show
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.dynamic.fold import launches, whole_text
from plica.codegen.llvm.dynamic.unit import units
from plica.codegen.lower.prepare import prepared
from plica.codegen.lower.scheduled import machine_of, processor
from plica.codegen.lower.supported import unsupported
from plica.codegen.target import Target
from plica.ir.graph import Const
from plica.ir.module import Module
from plica.rewrite.contract import Contract, fused, signless_zero
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.runtime.artefact import ALIGNMENT, Machine, aligned_array
from plica.runtime.dynamic.artefact import DynamicArtefact, Ending
from plica.runtime.dynamic.executable import DynamicExecutable
from plica.runtime.dynamic.form import Face
from plica.runtime.dynamic.value import Make
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.link import can_link
from plica.runtime.port import Array
from plica.runtime.store import Store


@frozen(eq=False)
class Lowered:
    """A program whose every step is known, its face, and how it came about."""

    program: Program
    face: Face
    make: Make
    history: History
    contract: Contract


def lower(
    module: Module, contract: Contract, packs: Sequence[Pack], target: Target | None = None
) -> Lowered:
    """The program of an inferred module; with a target, scheduled for it."""
    problems = [*unsupported(module, objects=True), *hidden_functions(module)]
    if problems:
        raise UnsupportedError(problems[0], *problems[1:])
    machine = None if target is None else machine_of(target)
    history = prepared(module, contract, packs, machine)
    kernels = {}
    for each in PASSES:
        if each.name == "to-anf":  # which would take the kernels apart, too
            kernels = kernels_of(history.module)
        history = history.through(each)
        if each.name == "settle-again":
            refuse_open(history.module)
    face, types = face_of(history.module)
    by = processor(machine, contract)
    program = counted(instruct(history.module, kernels, by))
    return Lowered(program, face, maker(history.module, types), history, contract)


def refuse_open(module: Module) -> None:
    """Refuse functions that would work for open sizes: no routine is made for these."""
    wrong = []
    for name, function in module.functions():
        if function.dims:
            dims = ", ".join([str(each.name) for each in function.dims])
            message = f"{name.name} works for open sizes: {dims}."
            hint = "Give numbers for the dims."
            wrong.append(Diagnostic("unsupported", message, suggestion=hint))
    if wrong:
        raise UnsupportedError(wrong[0], *wrong[1:])


def build(
    lowered: Lowered,
    target: Target,
    threads: int = 1,
    store: Store | None = None,
    versions: Sequence[tuple[str, str]] = (),
) -> DynamicExecutable:
    """Native code of a program, loaded into this process; `versions` say who made it."""
    toolchain.check_host(target)
    if not can_link():
        message = "Programs with data and recursion are compiled on Linux alone."
        raise UnsupportedError(Diagnostic("unsupported", message))
    contract = lowered.contract
    texts = _texts(lowered, target, contract >= fused, contract >= signless_zero)
    made = assemble(lowered, target, threads, store, versions)
    return DynamicExecutable(made, texts=texts, make=lowered.make)


def assemble(
    lowered: Lowered,
    target: Target,
    threads: int = 1,
    store: Store | None = None,
    versions: Sequence[tuple[str, str]] = (),
) -> DynamicArtefact:
    """All that will be loaded, here or elsewhere."""
    program, contract = lowered.program, lowered.contract
    return DynamicArtefact(
        lowered.face,
        Machine(target.triple, target.cpu, target.features),
        threads,
        units(program, target, contract >= fused, store, contract >= signless_zero),
        tuple([_aligned(each) for each in program.constants]),
        endings(program),
        (("llvm", toolchain.llvm_version()), *versions),
    )


def endings(program: Program) -> tuple[Ending, ...]:
    """Why a program can end without a result, in the order of the codes."""
    found = [Ending(e.code, e.message, e.node, e.expected) for e in program.failures]
    for each in launches(program):
        message = f"An index that {each.source} was given is outside the tensor it selects from."
        found.append(Ending("index-out-of-bounds", message, each.source))
    return tuple(found)


def _texts(
    lowered: Lowered, target: Target, fma: bool, signless: bool
) -> dict[str, Callable[[], str]]:
    """The code at each stage, made when somebody asks for it."""
    return {
        "graph": lambda: str(lowered.history.module),
        "routines": lambda: show(lowered.program),
        "asm": lambda: toolchain.assembly(
            whole_text(lowered.program, target, fma, signless), target
        ),
        "llvm": lambda: whole_text(lowered.program, target, fma, signless),
    }


def _aligned(of: Const) -> Array:
    """The bytes of a constant at a multiple of 64."""
    found = np.frombuffer(of.data or b"\0", np.uint8)
    if found.__array_interface__["data"][0] % ALIGNMENT == 0:
        return found
    copy = aligned_array(found.size)
    copy[:] = found
    return copy
