"""Emulated GPUs: a compiled model whose text for a GPU is run by a processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.emulator.gpu import loaded
from plica.runtime.emulator.program import EmulatedProgram
from plica.runtime.error import Diagnostic

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
