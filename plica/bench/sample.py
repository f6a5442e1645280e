"""Samples: random numbers for the inputs of a model that nobody gave any for.

>>> import numpy as np
>>> port = Port("x", (2, 3), "f32", np.dtype("float32"))
>>> [x] = sample([port])
>>> x.shape, x.dtype
((2, 3), dtype('float32'))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from plica.runtime.port import Array, Port


def sample(
    ports: Sequence[Port], given: Mapping[str, Array] | None = None, seed: int = 0
) -> list[Array]:
    """An array for each port: the one that is given, or random numbers that follow from a seed."""
    random = np.random.default_rng(seed)
    arrays: list[Array] = []
    for port in ports:
        if port.dtype.startswith(("f", "bf")):
            drawn: Array = random.standard_normal(port.shape).astype(port.numpy)
        else:
            drawn = random.integers(0, 2, port.shape).astype(port.numpy)
        arrays.append(drawn if given is None or port.name not in given else given[port.name])
    return arrays
