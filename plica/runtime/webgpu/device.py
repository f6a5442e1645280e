"""WebGPU devices: whether there is one, and its features."""

from __future__ import annotations

import os
import tempfile
from functools import lru_cache
from typing import Any, Final

from plica.runtime.error import Diagnostic, UnsupportedError

PACKAGE: Final = "pip install 'plica[webgpu]'"
DRIVER: Final = "apt-get install mesa-vulkan-drivers"

GROUP: Final = 64  # work items of a group, where a launch has several
ACROSS: Final = 65535  # groups along one axis of a launch, at most
SHADER_MARK: Final = "// shader "
"""The line that precedes a shader, before its name: an artefact holds all shaders as one text."""

_INT64: Final = "shader-int64"
_LIMITS: Final = ("max-buffer-size", "max-storage-buffer-binding-size")


@lru_cache(maxsize=1)
def device() -> Any:  # Any: of wgpu, as it is
    """The device that models run on; refuses a machine that has none."""
    try:
        import wgpu
    except ImportError:
        raise _refused("WebGPU is not installed in this Python.", "wgpu", PACKAGE) from None
    # A driver of Vulkan without screens asks where its sockets are, and complains where nothing is.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        limits = {name: adapter.limits[name] for name in _LIMITS}
        features = [each for each in (_INT64,) if each in adapter.features]
        return adapter.request_device_sync(required_features=features, required_limits=limits)
    except (RuntimeError, OSError) as error:
        message = "There is no device of WebGPU."
        raise _refused(message, "a driver of Vulkan, Metal or Direct3D", DRIVER) from error


def has_int64() -> bool:
    """Whether the device has integers of 64 bits."""
    return _INT64 in device().features


def _refused(message: str, expected: str, hint: str) -> UnsupportedError:
    wrong = Diagnostic("no-toolchain", message, None, expected, "none", f"Install it: {hint}.")
    return UnsupportedError(wrong)


def missing() -> str:
    """The missing parts of the runtime, with the command that installs them."""
    try:
        device()
    except UnsupportedError as error:
        diagnostic = error.diagnostics[0]
        return f"{diagnostic.message} {diagnostic.suggestion}"
    return ""
