"""The compiler of SPIR-V: clang reads OpenCL C, the translator of Khronos writes a module.

Where `spirv-val` is installed, every module is validated.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import which
from typing import Final

from plica.runtime.spirv.tool import done, pair

_READ: Final = (
    "--target=spir64", "-x", "cl", "-cl-std=CL1.2", "-w", "-emit-llvm", "-c",
    "-O1", "-Xclang", "-disable-llvm-passes",
    "-Xclang", "-finclude-default-header", "-Xclang", "-cl-ext=+cl_khr_fp64",
)  # fmt: skip

"""Passes are left to the driver: they bring blocks into orders that SPIR-V does not allow."""


def module_of(text: str) -> bytes:
    """The module of a text in OpenCL C; refuses a machine without the compiler."""
    clang, translator = pair()
    with tempfile.TemporaryDirectory(prefix="plica-") as name:
        folder = Path(name)
        (folder / "kernels.cl").write_text(text, encoding="utf-8")
        done([clang, *_READ, "kernels.cl", "-o", "kernels.bc"], folder)
        done([translator, "kernels.bc", "-o", "kernels.spv"], folder)
        if (validator := which("spirv-val")) is not None:
            done([validator, "kernels.spv"], folder)
        return (folder / "kernels.spv").read_bytes()
