"""XLA: runs StableHLO text on the processor, as an independent reference."""

from __future__ import annotations

from typing import Any

import numpy as np


def run(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """The results of the main function of a module."""
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import xla_client  # type: ignore[attr-defined]  # it is there

    backend: Any = xla_bridge.get_backend("cpu")
    device = backend.local_devices()[0]
    with jax.enable_x64(True):
        devices = xla_client.DeviceList((device,))
        loaded = backend.compile_and_load(text, devices, xla_client.CompileOptions())
        given = [jax.device_put(each, device) for each in arrays]
        found = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(each[0]) for each in found]
