"""The backend of plain C99: one file for the C compiler of the system, one thread, `math.h` alone.

>>> parse("c").describe()
'c'
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from plica.codegen.backend import Backend
from plica.codegen.c import toolchain
from plica.codegen.c.assemble import emit_c, entry, text_of
from plica.codegen.c.byte_dot import BYTE_DOT
from plica.codegen.c.dialect import C99
from plica.codegen.c.program import fold
from plica.codegen.code_artefact import CodeTexts
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.processor import machine_of
from plica.codegen.lower.shared_passes import BYTES, GROUP, PLAN, SCHEDULED
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.native import program_of
from plica.codegen.target import Target, named_target
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.optimise import OPTIMISE
from plica.schedule.default import Machine

KERNEL_PASSES: Final = Pipeline((*LOWERING["cpu"], *LOWERING["gpu"].only("narrow-indices")))
"""Those of processors, and indices of 32 bits: a C compiler can't tell that they are enough."""

PIPELINE: Final = Pipeline((
    *OPTIMISE.insert(BYTES, after="packs"),  # to-dataflow … remove-dead: good on any machine
    *GROUP,             # infer, resolve, decompose, fuse: operators become primitive functions
    *SCHEDULED,         # stages, forms, template, lowerable, schedule: kernels, in order
    *KERNEL_PASSES,     # double-buffer … narrow-indices: blocks become plain loops
    PLAN,               # values have their place in the arena
    Pass("emit-c", "Emit kernels and launches as one C file.", emit_c, kind="emit"),
))  # fmt: skip

parse: Final = named_target("c")


TEXTS: Final = CodeTexts({"c": lambda lowered, job, artefact: text_of(lowered())})


def kernel_text(kernel: Kernel, target: object) -> str:
    """The C text of one lowered kernel."""
    program = program_of(kernel)
    return fold(program, workspace_plan(program))


def generic_machine(target: object) -> Machine:
    """A processor of which nothing is known but that it has short vectors."""
    known = machine_of(Target("cpu", "generic", "generic", vector=128, registers=16))
    return evolve(known, dot=BYTE_DOT, zero_rows=False)


BACKEND: Final = Backend(
    "c",
    "Plain C99 for one thread, by the C compiler of the system.",
    parse,
    {"default": PIPELINE, "fast": PIPELINE, "max": PIPELINE},
    TEXTS.build,
    TEXTS.texts,
    machine=generic_machine,
    lowering=KERNEL_PASSES,
    dialect=C99,
    encode=kernel_text,
    here=lambda target: True,
    check_tools=lambda target: toolchain.compiler(),
    missing=toolchain.missing,
    facts=toolchain.version,
    threaded=False,
    entry=lambda target: entry,
)
