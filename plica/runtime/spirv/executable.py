"""SPIR-V programs: a compiled model on an OpenCL device that accepts modules.

A driver that accepts only the older SPIR (PoCL) is given the translator's output for the module.
"""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, Final

from plica.runtime.artefact import Artefact
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.executable import Executable
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


def export_module(of: Executable, path: PathLike[str] | str, name: str | None) -> None:
    """Write the module as a file."""
    Path(path).write_bytes(of.artefact.objects[0])


def spirv(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model on a device; calls from several threads are serialised."""
    return DeviceExecutable(artefact, texts, _KIND)


_KIND: Final = DeviceKind(step_loader(SpirvProgram), "opencl", export=export_module)
