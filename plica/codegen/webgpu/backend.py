"""The backend of WebGPU: shaders in WGSL, which the driver of a GPU compiles.

>>> parse("webgpu").describe()
'webgpu'
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.target import Target, unknown_target
from plica.codegen.webgpu.dialect import WGSL
from plica.codegen.webgpu.kernel import joined, kernel_code
from plica.runtime.artefact import WEBGPU_TRIPLE
from plica.runtime.webgpu.device import missing
from plica.runtime.webgpu.executable import WebgpuProgram

DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=8, cores=64)
"""Many items with few registers each: an item is a lane."""


@frozen
class WebgpuTarget:
    """A GPU that runs WGSL."""

    backend: ClassVar[str] = "webgpu"

    def describe(self) -> str:
        """A line that `parse` reads."""
        return "webgpu"

    def __str__(self) -> str:
        return "webgpu"


def parse(text: str) -> WebgpuTarget:
    """The target that a text means: there is nothing to say of it but its name."""
    if text.strip() != "webgpu":
        raise unknown_target(text)
    return WebgpuTarget()


LANGUAGE: Final = DeviceLanguage(
    "webgpu", "WGSL", "wgsl", WEBGPU_TRIPLE, kernel_code, joined,
    lambda text: ("+int64",) if "i64" in text or "u64" in text else (), WebgpuProgram,
    lambda target: DESCRIBED,
)  # fmt: skip

BACKEND: Final = device_backend(LANGUAGE, "GPUs by WebGPU: shaders in WGSL.", parse, WGSL, missing)
