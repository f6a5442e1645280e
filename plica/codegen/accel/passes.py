"""The pipeline of accelerators: integer layers become programs of the machine, the rest is native
code.

Parts on the processor go through the processor's own pipeline, like any model.
"""

from __future__ import annotations

from typing import Final

from plica.codegen.accel.offload import Offloaded, assembled, offload
from plica.codegen.accel.transposed import skip_zeros
from plica.codegen.compilation import Arranged, Job
from plica.codegen.interface import slots_of, with_ports
from plica.codegen.llvm import toolchain
from plica.core import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.ir.type import TupleType
from plica.runtime.accel.artefact import AccelArtefact


def split(module: Module, job: Job) -> Offloaded:
    """What runs where: layers on the machine, stages between them on the processor."""
    return offload(module, job.target)


def emit_accel(lowered: Arranged[Offloaded, None], job: Job) -> AccelArtefact:
    """Tilings are chosen, streams encoded, and combined with the native code of the stages."""
    if job.native is None:
        raise CompilerBug("Nobody compiles what stays on the processor.")
    parts = [job.native(each.module).artefact for each in lowered.program.stages]
    main = lowered.module.main_function()
    assert main.ret is not None
    takes = TupleType(tuple([param.type for param in main.params if param.type is not None]))
    interface = with_ports(main, slots_of("input", takes), slots_of("output", main.ret))
    versions = (("llvm", toolchain.llvm_version()), *job.versions)
    if job.known is None:
        return assembled(lowered.program, parts, interface, versions)
    return assembled(lowered.program, parts, interface, versions, job.known)


ACCEL: Final = Pipeline((
    exact_pass("skip-zeros", "Multiply no inserted zeros of transposed convolutions.", skip_zeros),
    Pass("offload",    "Offload integer layers to the accelerator.", split,
         kind="schedule"),
    Pass("emit-accel", "Compile each kind of layer to an instruction stream.",          emit_accel,
         kind="emit"),
))  # fmt: skip

PIPELINES: Final = {"default": ACCEL, "fast": ACCEL, "max": ACCEL}
