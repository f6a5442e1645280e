"""The backend of accelerators: a machine for integer layers, alongside the processor.

The pipeline of accelerators: integer layers become programs of the machine, the rest is native
code.

Parts on the processor go through the processor's own pipeline, like any model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from attrs import evolve

from plica.codegen.accel.encode import show_stream
from plica.codegen.accel.offload import Offloaded, assembled, offload, tunings
from plica.codegen.accel.scheduled import flow_of
from plica.codegen.accel.stream import build as build_stream
from plica.codegen.accel.target import OWN, AccelTarget, parse_accel, settled
from plica.codegen.accel.transposed import skip_zeros
from plica.codegen.backend import Backend, Texts
from plica.codegen.compilation import Arranged, Job, emitted
from plica.codegen.interface import slots_of, with_ports
from plica.codegen.llvm import toolchain
from plica.codegen.lower.passes import LOWERING
from plica.codegen.target import unknown_target
from plica.core import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass, Pipeline, exact_pass
from plica.ir.type import TupleType
from plica.runtime.accel.artefact import AccelArtefact
from plica.runtime.accel.executable import AccelExecutable
from plica.runtime.executable import Executable
from plica.schedule.form import ScheduleTables


def split(module: Module, job: Job) -> Offloaded:
    """What runs where: layers on the machine, stages between them on the processor."""
    return offload(module, job.target)


def emit_accel(lowered: Arranged[Offloaded, None], job: Job) -> AccelArtefact:
    """Tilings are chosen, streams encoded, and combined with the native code of the stages."""
    if job.native is None:
        raise CompilerBug("Nobody compiles what stays on the processor.")
    parts = [job.native(stage.module).artefact for stage in lowered.program.stages]
    main = lowered.module.main_function()
    assert main.ret is not None
    takes = TupleType(tuple([param.type for param in main.params if param.type is not None]))
    interface = with_ports(main, slots_of("input", takes), slots_of("output", main.ret))
    versions = (("llvm", toolchain.llvm_version()), *job.versions)
    if job.known is None:
        return assembled(lowered.program, parts, interface, versions)
    return assembled(lowered.program, parts, interface, versions, job.known)


PIPELINE: Final = Pipeline((
    exact_pass("skip-zeros", "Multiply no inserted zeros of transposed convolutions.", skip_zeros),
    Pass("offload",    "Offload integer layers to the accelerator.", split,
         kind="schedule"),
    Pass("emit-accel", "Compile each kind of layer to an instruction stream.",          emit_accel,
         kind="emit"),
))  # fmt: skip

PIPELINES: Final = dict.fromkeys(("default", "fast", "max"), PIPELINE)


def parse(text: str) -> AccelTarget:
    """The accelerator that a text means."""
    if (accel_target := parse_accel(text)) is None:
        raise unknown_target(text)
    return accel_target


def build(pipeline: Pipeline, lowered: Arranged[Offloaded, None], job: Job) -> AccelExecutable:
    """A model whose integer layers run on an accelerator, and the rest as native code."""
    if job.native is None:
        raise CompilerBug("Nobody compiles what stays on the processor.")
    native = lru_cache(maxsize=None)(job.native)  # each part is loaded and written once
    whole = emitted(pipeline, lowered, evolve(job, native=native))
    parts = [native(stage.module) for stage in lowered.program.stages]
    made = iter(parts)
    texts: dict[str, Callable[[], str]] = {
        kind: partial(_joined, parts, kind) for kind in ("kernel", "llvm", "asm")
    }
    known = job.known
    split = lowered.program
    tuning = tunings(split) if known is None else tunings(split, known)
    texts["tuning"] = lambda: tuning
    return AccelExecutable(whole, lambda _: next(made), texts)


def texts_of(lowered: Callable[[], Any], job: Job, artefact: Any) -> Texts:  # as `Backend` says
    """None: accelerator artefacts are not stored."""
    return {}


def stream_text(kernel: Kernel, target: AccelTarget) -> str:
    """The instructions of a kernel that was scheduled for the machine: loops that copy into its
    scopes, and its intrinsics."""
    machine = target.machine
    return show_stream(machine, build_stream(machine, flow_of(machine, kernel)))


def _joined(parts: Sequence[Executable], kind: str) -> str:
    """The sources of all native parts, one after the other."""
    return "\n".join([part.source(kind) for part in parts])


ACCEL: Final = Backend(
    "accel",
    "Accelerators, in simulators: accel, accel:vta, accel:osdi; the rest is native code",
    parse,
    PIPELINES,
    build,
    texts_of,
    tables=ScheduleTables((), {}),
    lowering=LOWERING["accel"].only("sink-buffers", "blocks-to-loops", "compact", "tidy"),
    encode=stream_text,
    settled=settled,
    keeps=lambda: False,
    shifts=True,
    native=True,
    library="For an accelerator an artefact is written: a library cannot hold the device.",
    tuning="plica.search.accel.layers:ACCEL",
    spellings=tuple(f"accel:{name}" for name in OWN),
)
