"""Programs with objects: the last passes of their pipeline, from functions to an artefact."""

from __future__ import annotations

from typing import TypeAlias

from plica.codegen.compilation import Arranged, Job
from plica.codegen.dynamic.instruction_selection import select_instructions
from plica.codegen.dynamic.interface import hidden_functions, interface_of
from plica.codegen.dynamic.prepare import kernels_of
from plica.codegen.dynamic.program import DynamicProgram
from plica.codegen.dynamic.reference_count import with_reference_counts
from plica.codegen.interface import aligned_bytes
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.dynamic.fold import launches
from plica.codegen.llvm.dynamic.unit import units
from plica.codegen.lower.supported import unsupported
from plica.ir.graph.module import Module
from plica.runtime.artefact import ArtefactMachine
from plica.runtime.dynamic.artefact import DynamicArtefact, Ending
from plica.runtime.error import UnsupportedError

DynamicLowered: TypeAlias = Arranged[DynamicProgram, None]
"""A program of routines: what it needs of memory is known when it runs."""


def refuse_unsupported(module: Module) -> Module:
    """Refuse, all at once, what no routine can do."""
    if problems := [*unsupported(module, objects=True), *hidden_functions(module)]:
        raise UnsupportedError(problems[0], *problems[1:])
    return module


def routines(module: Module, job: Job) -> DynamicProgram:
    """The program of a module of first-order functions: routines that call kernels."""
    return with_reference_counts(select_instructions(module, kernels_of(module), job.scheduler))


def emit_routines(lowered: DynamicLowered, job: Job) -> DynamicArtefact:
    """All that will be loaded, here or elsewhere."""
    program, target = lowered.program, job.target
    return DynamicArtefact(
        interface_of(lowered.final)[0],
        ArtefactMachine(target.triple, target.cpu, target.features),
        job.threads,
        units(program, target, lowered.fused, job.store, lowered.signless),
        tuple([aligned_bytes(each) for each in program.constants]),
        endings(program),
        (("llvm", toolchain.llvm_version()), *job.versions),
    )


def endings(program: DynamicProgram) -> tuple[Ending, ...]:
    """Why a program can end without a result, in the order of the codes."""
    found = [Ending(e.code, e.message, e.node, e.expected) for e in program.failures]
    for each in launches(program):
        message = f"An index that {each.source} was given is outside the tensor it selects from."
        found.append(Ending("index-out-of-bounds", message, each.source))
    return tuple(found)
