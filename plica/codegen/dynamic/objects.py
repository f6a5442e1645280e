"""The backend of programs with data, recursion and functions as values, on processors.

>>> DYNAMIC.names[0], DYNAMIC.names[-1]
('refuse-unsupported', 'emit-routines')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from plica.codegen.backend import Backend, Texts
from plica.codegen.compilation import Arranged, Job, emitted
from plica.codegen.dynamic.instruction_selection import select_instructions
from plica.codegen.dynamic.interface import hidden_functions, interface_of, maker
from plica.codegen.dynamic.prepare import FIRST_ORDER, NAMED_KERNELS, kernels_of
from plica.codegen.dynamic.program import DynamicProgram
from plica.codegen.dynamic.reference_count import with_reference_counts
from plica.codegen.dynamic.show import show
from plica.codegen.interface import aligned_bytes
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.backend import with_threads
from plica.codegen.llvm.dynamic.fold import launches, whole_text
from plica.codegen.llvm.dynamic.unit import units
from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.processor import machine_of
from plica.codegen.lower.shared_passes import WIDE, WINOGRAD
from plica.codegen.lower.supported import unsupported
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.artefact import ArtefactMachine
from plica.runtime.dynamic.artefact import DynamicArtefact, Ending
from plica.runtime.dynamic.executable import DynamicExecutable
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.link import can_link

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
        tuple([aligned_bytes(constant) for constant in program.constants]),
        endings(program),
        (("llvm", toolchain.llvm_version()), *job.versions),
    )


def endings(program: DynamicProgram) -> tuple[Ending, ...]:
    """Why a program can end without a result, in the order of the codes."""
    found = [*program.failures]
    for launch in launches(program):
        message = f"An index that {launch.source} was given is outside the tensor it selects from."
        found.append(Ending("index-out-of-bounds", message, launch.source))
    return tuple(found)


# fmt: off
DYNAMIC: Final = Pipeline((
    exact_pass("refuse-unsupported", "Refuse what routines cannot express.",
               refuse_unsupported),
    *OPTIMISE,          # to-dataflow … remove-dead: what is good on any machine
    *WIDE,              # widen, fold-widened: processors multiply f32
    *WINOGRAD,          # winograd, fold-winograd: where it pays on this one
    *FIRST_ORDER,       # settle … place-known: functions as values become data
    *NAMED_KERNELS,     # join-lets … to-anf: steps that call kernels
    Pass("routines",      "Translate functions to routines with reference counting.", routines,
         kind="schedule"),
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    Pass("emit-routines", "Emit routines and kernels as machine code.",           emit_routines,
         kind="emit"),
))
# fmt: on

PIPELINES: Final = {"default": DYNAMIC, "fast": DYNAMIC.without("winograd", "fold-winograd"),
                "max": DYNAMIC}  # fmt: skip


def build(pipeline: Pipeline, lowered: DynamicLowered, job: Job) -> DynamicExecutable:
    """Native code of a program with objects, loaded into this process."""
    toolchain.check_host(job.target)
    if not can_link():
        message = "Programs with data and recursion are compiled on Linux alone."
        raise UnsupportedError(Diagnostic("unsupported", message))
    make = maker(lowered.final, interface_of(lowered.final)[1])
    texts = texts_of(lambda: lowered, job)
    return DynamicExecutable(emitted(pipeline, lowered, job), texts=texts, make=make)


def texts_of(lowered: Callable[[], DynamicLowered], job: Job, artefact: object = None) -> Texts:
    """The code of a program with objects at each stage."""

    def llvm() -> str:
        of = lowered()
        return whole_text(of.program, job.target, of.fused, of.signless)

    return {
        "graph": lambda: str(lowered().final),
        "routines": lambda: show(lowered().program),
        "asm": lambda: toolchain.assembly(llvm(), job.target),
        "llvm": llvm,
    }


OBJECTS: Final = Backend(
    "cpu",
    "Programs with data, recursion and functions as values, on processors.",
    find_target,
    PIPELINES,
    build,
    texts_of,
    machine=machine_of,
    settled=find_target,
    with_threads=with_threads,
    check_here=toolchain.check_host,
    keeps=lambda: False,
)
