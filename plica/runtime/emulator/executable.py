"""Emulated GPUs: a compiled model whose text for a GPU is run by a processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from os import PathLike

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulator.gpu import loaded
from plica.runtime.emulator.program import EmulatedProgram
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import NotedCode


class GpuEmulation(DeviceExecutable):
    """A compiled model for a GPU of NVIDIA's that is not there."""

    def __init__(
        self,
        artefact: Artefact,
        texts: Mapping[str, Callable[[], str]] | None = None,
        functions: Callable[[], ctypes.CDLL] | None = None,
    ) -> None:
        super().__init__(artefact, texts, "cuda", partial(EmulatedProgram, functions=functions))

    def source(self, kind: str = "cuda") -> str:
        """The code at one stage: the kernels, or CUDA C++."""
        return super().source(kind)

    def _noting(self) -> tuple[NotedCode, ...]:
        """Refuse: how long a processor takes for the work of a GPU says nothing of one."""
        message = "How long kernels take is not known of a GPU that a processor stands for."
        hint = "Compile for a GPU of this machine, or for the processor, and profile that."
        expected = "cuda, on a machine with such a GPU"
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, expected, self._target, hint)
        )

    def seconds(self, *args: object, **named: object) -> list[float]:
        """Refuse, as for a profile."""
        self._noting()
        return []

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """Refuse: a library for C is code of a processor."""
        message, hint = "Libraries for C are made for processors.", "Save the artefact instead."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", self._target, hint))


def open_emulation(
    artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
) -> OpenDeviceExecutable:
    """The same where sizes are open: the text is compiled once, whatever they are."""
    (code,) = artefact.objects
    names = () if artefact.device is None else tuple(artefact.device.functions)

    @lru_cache(maxsize=1)
    def functions() -> ctypes.CDLL:
        return loaded(code.decode(), names)

    def on_device(of: Artefact) -> GpuEmulation:
        return GpuEmulation(of, texts, functions)

    return OpenDeviceExecutable(artefact, on_device, texts)
