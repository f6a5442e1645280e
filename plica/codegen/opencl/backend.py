"""The backend of OpenCL: one text in OpenCL C, which the driver of a device compiles."""

from __future__ import annotations

from typing import Final

from plica.codegen.device_backend import DeviceLanguage, device_backend
from plica.codegen.opencl.dialect import OPENCL
from plica.codegen.opencl.kernel import joined, kernel_code
from plica.codegen.opencl.target import SPELLINGS, OpenclTarget, parse
from plica.codegen.target import Target
from plica.runtime.artefact import OPENCL_TRIPLE
from plica.runtime.opencl.device import missing
from plica.runtime.opencl.executable import OpenclProgram


def _described(target: OpenclTarget) -> Target:
    return target.machine


def _version(target: OpenclTarget) -> str:
    return str(target.vector)


LANGUAGE: Final = DeviceLanguage(
    "opencl", "OpenCL C", "opencl", OPENCL_TRIPLE, kernel_code, joined,
    lambda text: ("+fp64",) if "double" in text else (), OpenclProgram, _described, _version,
)  # fmt: skip

BACKEND: Final = device_backend(
    LANGUAGE,
    "Devices of OpenCL, by OpenCL C: opencl, or for vectors of some bits, opencl:256.",
    parse,
    OPENCL,
    missing,
    SPELLINGS,
)
