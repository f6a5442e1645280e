"""Emulated GPUs: a compiled model whose text for a GPU is run by a processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.cuda.step import DeviceCopy, DeviceProgram
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.emulator.gpu import loaded
from plica.runtime.emulator.program import EmulatedProgram, MetalProgram
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.executable import Executable

_UNTIMED: Final = Diagnostic(
    "unsupported",
    "How long kernels take is not known of a GPU that a processor stands for.",
    expected="cuda, on a machine with such a GPU",
    suggestion="Compile for a GPU of this machine, or for the processor, and profile that.",
)


def gpu_emulation(functions: Callable[[], ctypes.CDLL] | None = None) -> DeviceKind:
    """A GPU of NVIDIA's that is not there; its functions may be compiled already."""
    return DeviceKind(
        step_loader(partial(EmulatedProgram, functions=functions)),
        "cuda",
        is_text=True,
        untimed=_UNTIMED,
    )


def emulation(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model for a GPU of NVIDIA's that is not there."""
    return DeviceExecutable(artefact, texts, gpu_emulation())


def open_emulation(artefact: Artefact, texts: Sources | None = None) -> OpenDeviceExecutable:
    """The same where sizes are open: the text is compiled once, whatever they are."""
    (code,) = artefact.objects
    names = () if artefact.device is None else tuple(artefact.device.functions)

    @lru_cache(maxsize=1)
    def functions() -> ctypes.CDLL:
        return loaded(code.decode(), names)

    kind = gpu_emulation(functions)
    return OpenDeviceExecutable(artefact, lambda of: DeviceExecutable(of, texts, kind), texts)


def export_text(of: Executable, path: str | PathLike[str], name: str | None) -> None:
    """Writes the text to a file, preceded by its launches and their memory."""
    program = of.artefact.device
    assert isinstance(program, DeviceProgram)  # as the loader has checked
    layout = program.layout
    lines = [f"// {of.target}: {layout.size} bytes of memory; tensors and where they begin:"]
    constants = dict(layout.constants)
    for slot, at in enumerate(layout.places):
        where = f"constant {constants[slot]}" if slot in constants else f"byte {at}"
        lines.append(f"//   {slot}: {where}")
    lines.append(f"// inputs {list(layout.inputs)}, outputs {list(layout.outputs)}; in order:")
    for step in program.steps:
        if isinstance(step, DeviceCopy):
            lines.append(f"//   copy {step.size} bytes from {step.source} to {step.target}")
            continue
        scratch = [f"byte {at}" for at in layout.scratch[: step.scratch]]
        given = ", ".join([*map(str, step.slots), *scratch])
        lines.append(
            f"//   {step.function}({given}) grid {step.grid} block {step.block}"
            f" shared {step.shared}"
        )
    text = of.source()
    Path(path).write_text("\n".join([*lines, "", text]), encoding="utf-8")


def _elsewhere(
    artefact: Artefact, texts: Sources | None, kind: str, language: str, run: type[EmulatedProgram]
) -> DeviceExecutable:
    """A compiled model for a GPU that is elsewhere."""
    if texts is None:
        message = f"Nothing here loads {language}: the artefact is for another machine."
        hint = "Take it there, or compile the model again and export its text: exe.export(path)"
        raise ArtefactError(
            Diagnostic("other-machine", message, None, str(artefact.machine), "none", hint)
        )
    device = DeviceKind(step_loader(run), kind, export=export_text)
    return DeviceExecutable(artefact, texts, device)


def hip(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A model as HIP C++."""
    return _elsewhere(artefact, texts, "hip", "HIP", EmulatedProgram)


def metal(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A model as Metal Shading Language."""
    return _elsewhere(artefact, texts, "metal", "Metal", MetalProgram)
