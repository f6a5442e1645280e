"""The backend of Apple's GPUs: Metal Shading Language, an item of work for each thread.

>>> parse("metal").describe()
'metal'
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.metal.dialect import METAL
from plica.codegen.metal.kernel import joined, kernel_code
from plica.codegen.target import Target, unknown_target
from plica.runtime.artefact import METAL_TRIPLE
from plica.runtime.emulator.gpu import missing
from plica.runtime.emulator.program import MetalProgram

DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=8, cores=64)
"""Many items with few registers each: an item is a thread."""


@frozen
class MetalTarget:
    """A GPU of Apple's."""

    backend: ClassVar[str] = "metal"

    def describe(self) -> str:
        """A line that `parse` reads."""
        return "metal"

    def __str__(self) -> str:
        return "metal"


def parse(text: str) -> MetalTarget:
    """The target that a text means: there is nothing to say of it but its name."""
    if text.strip() != "metal":
        raise unknown_target(text)
    return MetalTarget()


LANGUAGE: Final = DeviceLanguage(
    "metal", "Metal Shading Language", "metal", METAL_TRIPLE, kernel_code, joined,
    lambda text: (), MetalProgram, lambda target: DESCRIBED,
)  # fmt: skip

BACKEND: Final = device_backend(
    LANGUAGE, "Apple's GPUs, as Metal Shading Language to be taken there.", parse, METAL, missing
)
