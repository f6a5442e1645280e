"""The backend of accelerators: a machine for integer layers, alongside the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from attrs import evolve

from plica.codegen.accel.assembly import show_stream
from plica.codegen.accel.offload import Offloaded, tunings
from plica.codegen.accel.passes import PIPELINES
from plica.codegen.accel.scheduled import flow_of
from plica.codegen.accel.stream import build as build_stream
from plica.codegen.accel.target import OWN, AccelTarget, parse_accel, settled
from plica.codegen.backend import Backend, Texts
from plica.codegen.compilation import Arranged, Job, emitted
from plica.codegen.lower.passes import LOWERING
from plica.codegen.target import unknown_target
from plica.core import CompilerBug
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.runtime.accel.executable import AccelExecutable
from plica.runtime.executable import Executable
from plica.schedule.form import ScheduleTables


def parse(text: str) -> AccelTarget:
    """The accelerator that a text means."""
    if (found := parse_accel(text)) is None:
        raise unknown_target(text)
    return found


def build(pipeline: Pipeline, lowered: Arranged[Offloaded, None], job: Job) -> AccelExecutable:
    """A model whose integer layers run on an accelerator, and the rest as native code."""
    if job.native is None:
        raise CompilerBug("Nobody compiles what stays on the processor.")
    native = lru_cache(maxsize=None)(job.native)  # each part is loaded and written once
    whole = emitted(pipeline, lowered, evolve(job, native=native))
    parts = [native(each.module) for each in lowered.program.stages]
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
    return "\n".join([each.source(kind) for each in parts])


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
    tuning="plica.search.accel.target:ACCEL",
    spellings=tuple(f"accel:{name}" for name in OWN),
)
