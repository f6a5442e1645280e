"""The pipelines of processors: from a module to objects that LLVM made, which the last pass
assembles.

    PIPELINES["default"]    all that is known to pay PIPELINES["fast"]       code soon rather than
    fast code: Winograd for small weights alone, products,
                        windows and rows have loops without a schedule, and LLVM improves less
    PIPELINES["max"]        as the default; searching costs more than compiling may (`plica.tune`)

>>> CPU.kinds
('graph', 'rules', 'stages', 'forms', 'template', 'schedule', 'lower', 'plan', 'emit')
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import evolve, frozen

from plica.codegen.code_artefact import artefact_of
from plica.codegen.compilation import Job, Lowered
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.unit import units
from plica.codegen.lower.passes import LOWERING
from plica.codegen.lower.shared_passes import (
    BASELINE,
    BYTE_LAYOUT,
    BYTE_TABLES,
    BYTES,
    FLOATS,
    GROUP,
    LAUNCH_MEMORY,
    PLAN,
    SCATTER,
    SCHEDULED,
    SELECTION,
    WIDE,
    WINDOWS,
    WINOGRAD,
    WINOGRAD_BASELINE,
)
from plica.ir.contract import approx, reassociates
from plica.ir.graph.expression import Function
from plica.ir.passes import Pass, Pipeline
from plica.rewrite.fuse import fuse
from plica.rewrite.fuse.limit import FusionLimits
from plica.rewrite.fuse.to_stages import to_stages
from plica.rewrite.history import History
from plica.rewrite.optimise import OPTIMISE
from plica.rewrite.rule_pass import Setting
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.late import lazy_imports
from plica.schedule.collapse import collapsed
from plica.schedule.default.machine import Machine

with lazy_imports(__name__):
    from plica.schedule.default.column_chain import columns_of


@frozen
class EmitLlvm:
    """Objects of all kernels, which LLVM improves so much: 2 as usual, 1 to be done soon."""

    level: int = 2

    def __call__(self, lowered: Lowered, job: Job) -> Artefact:
        """All that will be loaded, here or elsewhere: the target need not be this machine."""
        program, plan, target = lowered.program, lowered.plan, job.target
        made = units(
            program, plan, target, lowered.fused, job.store, lowered.signless, self.level,
            job.workers,
        )  # fmt: skip
        return artefact_of(
            lowered, job,
            ArtefactMachine(target.triple, target.cpu, target.features, target.machine),
            made.objects, versions=(("llvm", toolchain.llvm_version()),), threads=job.threads,
        )  # fmt: skip


def _emit(level: int) -> Pass:
    why = "Emit kernels and launches as machine code."
    return Pass("emit-llvm", why, EmitLlvm(level), kind="emit")


def are_columns(function: Function, machine: object = None) -> bool:
    """Whether one kernel computes all stages of rows over few columns, and keeps all cores busy."""
    columns = columns_of(collapsed(to_stages(function).stages, free=True))
    if columns is None or not columns.few:
        return False
    return not isinstance(machine, Machine) or columns.is_for(machine)


WINDOWED: Final = FusionLimits(windows=True)  # functions in which windows read bytes as they lie


UNPACKING: Final = approx(5e-6)  # the contract of the form `coded-rows`


def with_functions(history: History, setting: Setting) -> History:
    """Operators as functions, which are as large as forms within the contract make kernels of: sums
    of a few columns, and of products of unpacked weights, are joined in any order."""
    limits = WINDOWED
    if setting.contract >= reassociates:
        machine = setting.machine if isinstance(setting, Job) else None
        unpacks = setting.contract >= UNPACKING
        limits = evolve(limits, columns=partial(are_columns, machine=machine), unpacks=unpacks)
    return history.made(FUSE, fuse(history.module, limits))


FUSE: Final = evolve(GROUP.find("fuse"), run=with_functions, kind="rules")

GROUPED: Final = GROUP.replace("fuse", FUSE)

CPU: Final = Pipeline((
    *OPTIMISE.insert(BYTES, after="packs").insert(BYTE_TABLES, before="bytes"),
    # to-dataflow … remove-dead: good on any machine
    WINDOWS,            # those of bytes over open images are rows of a product
    BYTE_LAYOUT,        # convolutions of bytes have channels last
    FLOATS,             # depthwise ones that have not are those of floats
    *WIDE,              # widen, fold-widened: processors multiply f32
    *WINOGRAD,          # winograd, fold-winograd: where it pays on this one
    SCATTER,            # values are put at places one by one, as a processor goes through them
    SELECTION,          # the greatest elements of a row are kept one by one
    *GROUPED,           # infer, resolve, decompose, fuse: operators become primitive functions
    *SCHEDULED,         # stages, forms, template, lowerable, schedule: kernels, in order
    *LOWERING["cpu"],   # double-buffer … reuse: blocks become plain loops over flat buffers
    LAUNCH_MEMORY,      # large buffers of kernels are not on the stack
    PLAN,               # values have their place in the arena
    _emit(level=2),
))  # fmt: skip

FAST: Final = (
    CPU.replace("winograd", WINOGRAD_BASELINE)
    .replace("stages", BASELINE.find("stages"))
    .replace("schedule", BASELINE.find("schedule"))
    .replace("emit-llvm", _emit(level=1))
)

PIPELINES: Final = {"default": CPU, "fast": FAST, "max": CPU}
