"""The backend of microcontrollers: plain C, a cross compiler, and QEMU to run the program.

>>> parse("micro").describe(), str(parse("micro:cortex-m3"))
('micro:cortex-m7', 'micro:cortex-m3')

>>> from plica.ir.graph.expression import const
>>> _is_bytes(const(np.array([1, -128], np.int32))), _is_bytes(const(np.array([128], np.int32)))
(True, False)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from shutil import which
from typing import ClassVar, Final

import numpy as np
from attrs import evolve, frozen

from plica.codegen.backend import Backend
from plica.codegen.c.assemble import text_of
from plica.codegen.c.backend import (
    KERNEL_PASSES,
    PIPELINE as C_PIPELINE,
    generic_machine,
    kernel_text,
)
from plica.codegen.c.dialect import C99
from plica.codegen.c.program import NarrowParams, fold
from plica.codegen.code_artefact import CodeTexts, artefact_of
from plica.codegen.compilation import Job, Lowered, emitted
from plica.codegen.emulated_entry import program_artefact
from plica.codegen.interface import aligned_bytes
from plica.codegen.lower.shared_passes import grouping
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.micro.core import CORES, DEFAULT, Core
from plica.codegen.micro.image import Image, image_of, model_object
from plica.codegen.program import Choose, Copy, Launch, Program
from plica.codegen.target import SpelledTarget, unknown_target
from plica.core import did_you_mean
from plica.ir.graph.expression import Const
from plica.ir.passes import Pass, Pipeline
from plica.ir.type import i8, i32
from plica.rewrite.fuse import FusionLimits
from plica.rewrite.rule_pass import rules
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulated import EmulatedModel, check_tool, emulated_executable, tool_output
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.port import Array
from plica.schedule.default import Machine


@frozen
class MicroTarget(SpelledTarget):
    """A microcontroller by the name of its core."""

    core: Core

    backend: ClassVar[str] = "micro"

    def __str__(self) -> str:
        return f"micro:{self.core.name}"


def parse(text: str) -> MicroTarget:
    """The microcontroller that a text means."""
    kind, colon, name = text.strip().partition(":")
    if kind != "micro" or bool(colon) != bool(name):
        raise unknown_target(text)
    if (core := CORES.get(name or DEFAULT)) is None:
        message, expected = f"There is no core {name!r} among the targets.", ", ".join(CORES)
        hint = did_you_mean(name.lower(), tuple(CORES))
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, hint))
    return MicroTarget(core)


def emit_micro(lowered: Lowered, job: Job) -> Artefact:
    """The artefact of a model for a microcontroller: C, and the object that comes of it."""
    core: Core = job.target.core
    said = tool_output([core.compiler, "--version"], Path(), package=core.package)
    machine = ArtefactMachine(core.triple, core.name, ())
    artefact = artefact_of(
        lowered, job, machine, (), versions=(("cc", said.text.splitlines()[0]),),
        constants=static_constants(lowered.program), text=_text(lowered),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        return replace(artefact, objects=(model_object(artefact, core, Path(folder)).read_bytes(),))


BYTE_VIEWS: Final = rules("byte-views", "Bytes are widened where they are read.", "byte-views")

_FUSE: Final = grouping(FusionLimits(bytes_stay=True)).find("fuse")
"""Memory is scarcer than time: what is made of bytes is kept as bytes."""

PIPELINE: Final = Pipeline((
    *C_PIPELINE.without("emit-c").insert(BYTE_VIEWS, before="fuse").replace("fuse", _FUSE),
    Pass("emit-micro", "Kernels become C, and an object for the core.", emit_micro, kind="emit"),
))  # fmt: skip


def build(pipeline: Pipeline, lowered: Lowered, job: Job) -> DeviceExecutable:
    """A model that QEMU runs, on a board with the core."""
    artefact = emitted(pipeline, lowered, job)
    program, size = on_board(artefact, job.target.core)
    texts = {**TEXTS.texts(lambda: lowered, job), "size": size}
    return emulated_executable(program, artefact, texts)


def on_board(artefact: Artefact, core: Core) -> tuple[EmulatedModel, Callable[[], str]]:
    """What QEMU runs of an artefact, the image being made at the first call, and what that image
    holds."""
    wrapper = lru_cache(maxsize=1)(partial(_image, artefact, core))
    board = core.board
    command = [
        board.emulator, "-M", board.machine, "-nographic", "-monitor", "none", "-serial", "null",
        *(["-bios", "none"] if board.machine == "virt" else []),
        "-semihosting-config", "enable=on,target=native", "-kernel", "program",
    ]  # fmt: skip
    program = EmulatedModel(artefact, lambda: wrapper().program, command, core.package)
    return program, lambda: str(wrapper().size)


def entry(core: Core, program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, object]:
    """Code of a program on the board of a core, called from this process."""
    machine = ArtefactMachine(core.triple, core.name, ())
    text, constants = fold(program, plan, narrow_params(program)), static_constants(program)
    artefact = program_artefact(program, plan, machine, constants=constants, text=text)
    return on_board(artefact, core)[0].entry()


def _image(artefact: Artefact, core: Core) -> Image:
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        return image_of(artefact, core, Path(folder))


def _text(lowered: Lowered) -> str:
    return text_of(lowered, narrow_params(lowered.program))


TEXTS: Final = CodeTexts({"c": lambda lowered, job, artefact: _text(lowered())})


def _machine(target: MicroTarget) -> Machine:
    """A core that keeps little beside what it computes: copies that others have in caches take
    memory here."""
    return evolve(generic_machine(target), caches=(2 * 1024, 16 * 1024))


def _check_here(target: MicroTarget) -> None:
    for tool in (target.core.compiler, target.core.board.emulator):
        check_tool(tool, target.core.package)


def _missing() -> str:
    """What to install where no core can be tried."""
    core = CORES[DEFAULT]
    lacking = [each for each in (core.compiler, core.board.emulator) if which(each) is None]
    if not lacking:
        return ""
    return f"There is no {' and no '.join(lacking)} here: apt-get install {core.package}."


BACKEND: Final = Backend(
    "micro",
    "Microcontrollers without an operating system, run by QEMU: micro, micro:cortex-m3, …",
    parse,
    {"default": PIPELINE, "fast": PIPELINE, "max": PIPELINE},
    build,
    TEXTS.texts,
    machine=_machine,
    lowering=KERNEL_PASSES,
    dialect=C99,
    encode=kernel_text,
    check_here=_check_here,
    keeps=lambda: False,
    check_tools=lambda target: check_tool(target.core.compiler, target.core.package),
    missing=_missing,
    threaded=False,
    entry=lambda target: partial(entry, target.core),
    library="For a microcontroller sources are written: export('model.c').",
    spellings=tuple(f"micro:{name}" for name in CORES),
)


def narrow_slots(program: Program) -> frozenset[int]:
    """The slots of constants that are kept as bytes."""
    uses: dict[tuple[int, int], set[int]] = {}
    spoiled: set[int] = set()
    for step in [step for steps in program.regions for step in steps]:
        match step:
            case Launch(kernel, args, _):
                for place, slot in enumerate(args):
                    uses.setdefault((kernel, place), set()).add(slot)
            case Copy(source, target):
                spoiled |= {source, target}
            case Choose(condition, _, _):
                spoiled.add(condition)
            case _:
                pass
    found = {
        number
        for number, slot in enumerate(program.slots)
        if slot.space == "constant"
        and slot.dtype is i32
        and number not in spoiled
        and _is_bytes(program.constants[slot.index])
    }
    while True:
        left = found - {slot for taken in uses.values() if not taken <= found for slot in taken}
        if left == found:
            return frozenset(found)
        found = left


def narrow_params(program: Program) -> NarrowParams:
    """The parameters of each kernel that are given narrow constants."""
    slots = narrow_slots(program)
    found: dict[int, set[int]] = {}
    for step in [step for steps in program.regions for step in steps]:
        if isinstance(step, Launch):
            places = {place for place, slot in enumerate(step.args) if slot in slots}
            found.setdefault(step.kernel, set()).update(places)
    return {kernel: frozenset(places) for kernel, places in found.items()}


def static_constants(program: Program) -> tuple[Array, ...]:
    """The bytes of all constants, some of them narrow."""
    narrow = {program.slots[slot].index for slot in narrow_slots(program)}
    return tuple([
        aligned_bytes(constant) if number not in narrow else _bytes(constant)
        for number, constant in enumerate(program.constants)
    ])  # fmt: skip


def _bytes(of: Const) -> Array:
    return np.frombuffer(of.numpy().astype(i8.numpy).tobytes() or b"\0", np.uint8)


def _is_bytes(of: Const) -> bool:
    values = of.numpy()
    low, high = i8.bounds
    return bool(values.size and values.min() >= low and values.max() <= high)
