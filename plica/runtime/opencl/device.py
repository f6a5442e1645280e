"""OpenCL devices: whether there is one, which is used, and its features.

The first device, or the first whose name contains the text in `PLICA_OPENCL`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final

from plica.runtime.error import Diagnostic, UnsupportedError

PACKAGE: Final = "pip install 'plica[opencl]'"
DRIVER: Final = "apt-get install pocl-opencl-icd"


def devices() -> list[Any]:  # Any: of pyopencl, as they are
    """All devices of all platforms; refuses a Python without pyopencl."""
    try:
        import pyopencl
    except ImportError:
        raise _refused("OpenCL is not installed in this Python.", "pyopencl", PACKAGE) from None
    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error:
        return []
    return [device for platform in platforms for device in platform.get_devices()]


def device() -> Any:  # as above
    """The device that models run on; refuses a machine that has none."""
    wanted = os.environ.get("PLICA_OPENCL", "")
    if not (here := devices()):
        raise _refused("There is no device of OpenCL.", "a platform with a device", DRIVER)
    found = next((each for each in here if wanted in each.name), None)
    if found is None:
        message = "No device of OpenCL has the text in PLICA_OPENCL in its name."
        names = ", ".join(each.name for each in here)
        hint = "Unset it, or name one of these."
        raise UnsupportedError(Diagnostic("no-toolchain", message, None, wanted, names, hint))
    return found


def _refused(message: str, expected: str, hint: str) -> UnsupportedError:
    wrong = Diagnostic("no-toolchain", message, None, expected, "none", f"Install it: {hint}.")
    return UnsupportedError(wrong)


@lru_cache(maxsize=1)
def vector_bits_here() -> int | None:
    """The vector width of the local device in bits, or None."""
    try:
        return 32 * int(device().native_vector_width_float)
    except UnsupportedError:
        return None


def missing() -> str:
    """The missing parts of the runtime, with the command that installs them."""
    try:
        device()
    except UnsupportedError as error:
        diagnostic = error.diagnostics[0]
        return f"{diagnostic.message} {diagnostic.suggestion}"
    return ""
