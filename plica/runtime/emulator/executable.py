"""Emulated GPUs: a compiled model whose text for a GPU is run by a processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike

from plica.runtime.artefact import Artefact
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulator.program import EmulatedProgram
from plica.runtime.error import Diagnostic, UnsupportedError


class GpuEmulation(DeviceExecutable):
    """A compiled model for a GPU of NVIDIA's that is not there."""

    def __init__(
        self, artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        super().__init__(artefact, texts, "cuda", EmulatedProgram)

    def source(self, kind: str = "cuda") -> str:
        """The code at one stage: the kernels, or CUDA C++."""
        return super().source(kind)

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """Refuse: a library for C is code of a processor."""
        message, hint = "Libraries for C are made for processors.", "Save the artefact instead."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", self._target, hint))
