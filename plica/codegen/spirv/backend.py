"""The backend of SPIR-V: OpenCL C that clang and the translator of Khronos make modules of.

>>> str(parse("spirv"))
'spirv'
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import which
from typing import Final

from attrs import evolve

from plica.codegen.device_backend import device_backend
from plica.codegen.opencl.backend import LANGUAGE as OPENCL_C
from plica.codegen.opencl.dialect import OPENCL
from plica.codegen.target import Target, named_target
from plica.runtime.artefact import SPIRV_TRIPLE
from plica.runtime.spirv.executable import SpirvProgram
from plica.runtime.spirv.tool import done, missing, pair

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


DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=16, cores=8)
"""What every device has: vectors of four floats."""

parse: Final = named_target("spirv")


LANGUAGE: Final = evolve(
    OPENCL_C, name="spirv", title="SPIR-V", triple=SPIRV_TRIPLE, run=SpirvProgram,
    described=lambda target: DESCRIBED, version=lambda target: "generic", code=module_of,
)  # fmt: skip


BACKEND: Final = evolve(
    device_backend(
        LANGUAGE, "Devices that take SPIR-V, by drivers of OpenCL.", parse,
        evolve(OPENCL, name="spirv"), missing,
    ),
    check_tools=lambda target: pair(),
    facts=lambda: " ".join(pair()),
)  # fmt: skip
