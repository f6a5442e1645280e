"""The backend of WebGPU: shaders in WGSL, which the driver of a GPU compiles.

>>> parse("webgpu").describe()
'webgpu'
"""

from __future__ import annotations

from typing import Final

from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.target import Target, named_target
from plica.codegen.webgpu.dialect import WGSL
from plica.codegen.webgpu.kernel import joined, kernel_code
from plica.runtime.artefact import WEBGPU_TRIPLE
from plica.runtime.webgpu.device import missing
from plica.runtime.webgpu.executable import WebgpuProgram

DESCRIBED: Final = Target("cpu", "generic", "generic", vector=128, registers=8, cores=64)
"""Many items with few registers each: an item is a lane."""

parse: Final = named_target("webgpu")


LANGUAGE: Final = DeviceLanguage(
    "webgpu", "WGSL", "wgsl", WEBGPU_TRIPLE, kernel_code, joined,
    lambda text: ("+int64",) if "i64" in text or "u64" in text else (), WebgpuProgram,
    lambda target: DESCRIBED,
)  # fmt: skip

BACKEND: Final = device_backend(LANGUAGE, "GPUs by WebGPU: shaders in WGSL.", parse, WGSL, missing)
