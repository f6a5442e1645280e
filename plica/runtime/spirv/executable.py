"""Executables of SPIR-V: a compiled model on a device of OpenCL that takes modules.

A driver that takes the older SPIR alone (PoCL) is handed what the translator reads back from the
module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from plica.runtime.artefact import Artefact
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.opencl.executable import OpenclProgram
from plica.runtime.spirv.tool import done, pair


class SpirvProgram(OpenclProgram):
    """The launches of a module on a device."""

    def _built(self, code: bytes, found: Any) -> Any:  # Any: of pyopencl, as they are
        cl = self._cl
        if "SPIR-V" in found.il_version:
            return cl.Program(self._context, code).build(["-w"])
        if "cl_khr_spir" in found.extensions.split():
            program = cl.Program(self._context, [found], [_read_back(code)])
            return program.build(["-x", "spir", "-spir-std=1.2"])
        message = "The driver of the device takes no SPIR-V."
        hint = "Take the module elsewhere: exe.export('model.spv'); or use target='opencl'."
        raise ArtefactError(
            Diagnostic("other-machine", message, None, "a driver with SPIR-V", found.name, hint)
        )


def _read_back(code: bytes) -> bytes:
    """A module as LLVM's code of a device."""
    with tempfile.TemporaryDirectory(prefix="plica-") as name:
        folder = Path(name)
        (folder / "kernels.spv").write_bytes(code)
        done([pair()[1], "-r", "kernels.spv", "-o", "kernels.bc"], folder)
        return (folder / "kernels.bc").read_bytes()


class SpirvExecutable(DeviceExecutable):
    """A compiled model on a device; calls from several threads take turns."""

    def __init__(
        self, artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        known = texts or {"kernel": lambda: artefact.record().kernels}
        super().__init__(artefact, known, "spirv", SpirvProgram)

    def source(self, kind: str = "opencl") -> str:
        """The code at one stage: the kernels, or OpenCL C where it was just compiled."""
        return super().source(kind)

    def export(self, path: str | PathLike[str], name: str | None = None) -> None:
        """The module as a file."""
        assert self.artefact is not None
        Path(path).write_bytes(self.artefact.objects[0])
