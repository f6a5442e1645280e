"""The backend of SPIR-V: OpenCL C that clang and the translator of Khronos make modules of.

>>> str(parse("spirv"))
'spirv'
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import evolve, frozen

from plica.codegen.device_backend import device_backend
from plica.codegen.opencl.backend import LANGUAGE as OPENCL_C
from plica.codegen.opencl.dialect import OPENCL
from plica.codegen.spirv.toolchain import module_of
from plica.codegen.target import Target, unknown_target
from plica.runtime.artefact import SPIRV_TRIPLE
from plica.runtime.spirv.executable import SpirvProgram
from plica.runtime.spirv.tool import missing, pair

DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=16, cores=8)
"""What every device has: vectors of four floats."""


@frozen
class SpirvTarget:
    """A device whose driver takes SPIR-V."""

    backend: ClassVar[str] = "spirv"

    def describe(self) -> str:
        """A line that `parse` reads."""
        return "spirv"

    def __str__(self) -> str:
        return "spirv"


def parse(text: str) -> SpirvTarget:
    """The target that a text means: there is nothing to say of it but its name."""
    if text.strip() != "spirv":
        raise unknown_target(text)
    return SpirvTarget()


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
