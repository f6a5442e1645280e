"""XLA on the processor runs the text of a module: an independent meaning."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.lib import xla_client  # type: ignore[attr-defined]  # it is there


def run(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """What the main function of a module gives."""
    with jax.enable_x64(True):
        return _run(text, *arrays)


def _run(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    backend: Any = xla_bridge.get_backend("cpu")
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    loaded = backend.compile_and_load(text, devices, xla_client.CompileOptions())
    given = [jax.device_put(each, backend.local_devices()[0]) for each in arrays]
    found = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
    return [np.asarray(each[0]) for each in found]
