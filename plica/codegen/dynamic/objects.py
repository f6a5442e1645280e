"""The backend of programs with data, recursion and functions as values, on processors.

>>> DYNAMIC.names[0], DYNAMIC.names[-1]
('refuse-unsupported', 'emit-routines')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.codegen.backend import Backend, Texts
from plica.codegen.compilation import Job, emitted
from plica.codegen.dynamic.assemble import (
    DynamicLowered,
    emit_routines,
    refuse_unsupported,
    routines,
)
from plica.codegen.dynamic.interface import interface_of, maker
from plica.codegen.dynamic.prepare import FIRST_ORDER, NAMED_KERNELS
from plica.codegen.dynamic.show import show
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.backend import with_threads
from plica.codegen.llvm.dynamic.fold import whole_text
from plica.codegen.llvm.processor import find_target
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.processor import machine_of
from plica.codegen.lower.shared_passes import WIDE, WINOGRAD
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.rewrite.optimise import OPTIMISE
from plica.runtime.dynamic.executable import DynamicExecutable
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.link import can_link

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
