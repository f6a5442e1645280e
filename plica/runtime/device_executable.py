"""Device executables: compiled models whose code is a text that the driver of a device compiles.

What runs on the device is told by the program; here are the face of a model, and its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.executable import Executable
from plica.runtime.port import Array


class LoadedProgram(Protocol):
    """A program on a device: 0, or the number of the launch that failed."""

    def call(self, addresses: Sequence[int]) -> int: ...


LoadProgram = Callable[
    [bytes, DeviceProgram, Sequence[Array], Sequence[int], Sequence[str]], LoadedProgram
]
"""Code, its steps, constants, bytes of inputs and outputs, and what the device must have."""


class DeviceExecutable(Executable):
    """A compiled model on a device; calls from several threads take turns."""

    def __init__(
        self,
        artefact: Artefact,
        texts: Mapping[str, Callable[[], str]] | None,
        kind: str,
        load: LoadProgram,
    ) -> None:
        (code,) = artefact.objects
        face = artefact.interface
        assert isinstance(artefact.device, DeviceProgram)  # as the loader has checked
        super().__init__(
            0,
            face,
            workspace=artefact.device.layout.size,
            sources=artefact.sources,
            texts=texts
            or {
                "kernel": lambda: artefact.record().kernels,
                kind: lambda: code.decode("utf-8", "replace"),
            },
            target=str(artefact.machine),
            artefact=artefact,
        )
        sizes = [port.nbytes for port in (*face.inputs, *face.outputs)]
        features = artefact.machine.features
        self._device = load(code, artefact.device, artefact.constants, sizes, features)

    def run(self, addresses: Sequence[int]) -> None:
        """Run the code on memory of the types of the inputs, then of the outputs, in order."""
        if code := self._device.call(addresses):
            raise self.failure(code)
